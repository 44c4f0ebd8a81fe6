package mnn

import flatbuffers "github.com/google/flatbuffers/go"

func (*Permute) paramType() ParamType         { return ParamPermute }
func (*Reduction) paramType() ParamType       { return ParamReductionParam }
func (*TopK) paramType() ParamType            { return ParamTopKV2 }
func (*Cast) paramType() ParamType            { return ParamCastParam }
func (*Range) paramType() ParamType           { return ParamRange }
func (*Relu) paramType() ParamType            { return ParamRelu }
func (*BatchMatMul) paramType() ParamType     { return ParamBatchMatMulParam }
func (*MoE) paramType() ParamType             { return ParamExtra }
func (*LinearAttention) paramType() ParamType { return ParamLinearAttentionParam }

func (*Permute) check() error         { return nil }
func (*Reduction) check() error       { return nil }
func (*TopK) check() error            { return nil }
func (*Cast) check() error            { return nil }
func (*Range) check() error           { return nil }
func (*Relu) check() error            { return nil }
func (*BatchMatMul) check() error     { return nil }
func (*MoE) check() error             { return nil }
func (*LinearAttention) check() error { return nil }

func (*Permute) marshal(*encoder) flatbuffers.UOffsetT         { panic("internal error: not written yet") }
func (*Reduction) marshal(*encoder) flatbuffers.UOffsetT       { panic("internal error: not written yet") }
func (*TopK) marshal(*encoder) flatbuffers.UOffsetT            { panic("internal error: not written yet") }
func (*Cast) marshal(*encoder) flatbuffers.UOffsetT            { panic("internal error: not written yet") }
func (*Range) marshal(*encoder) flatbuffers.UOffsetT           { panic("internal error: not written yet") }
func (*Relu) marshal(*encoder) flatbuffers.UOffsetT            { panic("internal error: not written yet") }
func (*BatchMatMul) marshal(*encoder) flatbuffers.UOffsetT     { panic("internal error: not written yet") }
func (*MoE) marshal(*encoder) flatbuffers.UOffsetT             { panic("internal error: not written yet") }
func (*LinearAttention) marshal(*encoder) flatbuffers.UOffsetT { panic("internal error: not written yet") }
