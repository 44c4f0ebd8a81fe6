package kernel

// The assembly and its Go declarations are written by the programs of _asm, a module of its own. After a change there, or
// with a new version of avo, run `go generate ./runtime/kernel` and commit the result; a second run must leave no difference.

//go:generate go run -C _asm . -kernel attend -out ../engine_attention_amd64.s -go ../engine_attention_asm_amd64.go
//go:generate go run -C _asm . -kernel codes -out ../codes_amd64.s -go ../codes_asm_amd64.go
//go:generate go run -C _asm . -kernel convert -out ../convert_amd64.s -go ../convert_asm_amd64.go
//go:generate go run -C _asm . -kernel elements -out ../elements_amd64.s -go ../elements_asm_amd64.go
//go:generate go run -C _asm . -kernel gemm -out ../gemm_amd64.s -go ../gemm_asm_amd64.go
//go:generate go run -C _asm . -kernel grid -out ../gridsearch_amd64.s -go ../gridsearch_asm_amd64.go
//go:generate go run -C _asm . -kernel half -out ../half_amd64.s -go ../half_asm_amd64.go
//go:generate go run -C _asm . -kernel int8 -out ../int8_amd64.s -go ../int8_asm_amd64.go
//go:generate go run -C _asm . -kernel peak -out ../peak_amd64.s -go ../peak_asm_amd64.go
//go:generate go run -C _asm . -kernel rtn -out ../rtn_amd64.s -go ../rtn_asm_amd64.go
//go:generate go run -C _asm . -kernel softmax -out ../softmax_amd64.s -go ../softmax_asm_amd64.go
//go:generate go run -C _asm ./arm64 -dir ..
