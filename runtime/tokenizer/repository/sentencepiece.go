package repository

import (
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// sentencePiece is a file of the library `sentencepiece`, usually tokenizer.model: the message ModelProto of its
// sentencepiece_model.proto. Fields without effect on encoding are not kept.
type sentencePiece struct {
	pieces     []spPiece
	trainer    spTrainer
	normalizer spNormalizer
}

type spPiece struct {
	text  string
	score float32
	kind  int32
}

// Kinds of pieces.
const (
	spNormal      = 1
	spUnknown     = 2
	spControl     = 3
	spUserDefined = 4
	spUnused      = 5
	spByte        = 6
)

// Kinds of models.
const (
	spUnigram = 1
	spBPE     = 2
	spWord    = 3
	spChar    = 4
)

// spTrainer is TrainerSpec.
type spTrainer struct {
	model            int32
	whitespaceSuffix bool
	byteFallback     bool
	unkID            int32
	bosID, eosID     int32
	unk, bos, eos    string
}

// spNormalizer is NormalizerSpec.
type spNormalizer struct {
	charsMap          []byte
	dummyPrefix       bool
	removeExtraSpaces bool
	escapeSpaces      bool
}

// maxVocabularyBytes bounds a piece: looking for the merges that make one takes time in the square of its length. The longest
// tokens of published vocabularies are runs of 128 or 256 bytes.
const maxVocabularyBytes = 1 << 10

// readSentencePiece reads a file. Defaults are those of the protocol.
func readSentencePiece(b []byte) (*sentencePiece, error) {
	m := &sentencePiece{
		trainer:    spTrainer{model: spUnigram, unkID: 0, bosID: 1, eosID: 2, unk: "<unk>", bos: "<s>", eos: "</s>"},
		normalizer: spNormalizer{dummyPrefix: true, removeExtraSpaces: true, escapeSpaces: true},
	}
	err := readProtobuf(b, func(f protobufField) error {
		var what string
		var read func(protobufField) error
		switch f.number {
		case 1:
			p := spPiece{kind: spNormal}
			m.pieces = append(m.pieces, p)
			what, read = fmt.Sprintf("piece %d", len(m.pieces)-1), m.pieces[len(m.pieces)-1].read
		case 2:
			what, read = "trainer_spec", m.trainer.read
		case 3:
			what, read = "normalizer_spec", m.normalizer.read
		default: // self_test_data, denormalizer_spec, extensions
			return nil
		}
		if err := f.is(wireBytes); err != nil {
			return err
		}
		if err := readProtobuf(f.bytes, read); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (p *spPiece) read(f protobufField) error {
	switch f.number {
	case 1:
		return f.toText(&p.text)
	case 2:
		return f.toFloat(&p.score)
	case 3:
		return f.toInt(&p.kind)
	}
	return nil
}

func (t *spTrainer) read(f protobufField) error {
	switch f.number {
	case 3:
		return f.toInt(&t.model)
	case 24:
		return f.toBool(&t.whitespaceSuffix)
	case 35:
		return f.toBool(&t.byteFallback)
	case 40:
		return f.toInt(&t.unkID)
	case 41:
		return f.toInt(&t.bosID)
	case 42:
		return f.toInt(&t.eosID)
	case 45:
		return f.toText(&t.unk)
	case 46:
		return f.toText(&t.bos)
	case 47:
		return f.toText(&t.eos)
	}
	return nil
}

func (n *spNormalizer) read(f protobufField) error {
	switch f.number {
	case 2:
		return f.toBytes(&n.charsMap)
	case 3:
		return f.toBool(&n.dummyPrefix)
	case 4:
		return f.toBool(&n.removeExtraSpaces)
	case 5:
		return f.toBool(&n.escapeSpaces)
	}
	return nil
}

// check makes the checks of the library when it opens a file.
func (m *sentencePiece) check() error {
	if len(m.pieces) == 0 {
		return fmt.Errorf("no pieces: %w", tensor.ErrCorrupt)
	}
	seen := make(map[string]int, len(m.pieces))
	unknown, byteTokens := -1, 0
	for id, p := range m.pieces {
		switch {
		case p.text == "" || !utf8.ValidString(p.text):
			return fmt.Errorf("piece %d is %q: %w", id, p.text, tensor.ErrCorrupt)
		case len(p.text) > maxVocabularyBytes:
			return unsupported(fmt.Sprintf("piece %d", id), fmt.Sprintf("of %d bytes", len(p.text)))
		case math.IsNaN(float64(p.score)) || math.IsInf(float64(p.score), 0):
			return fmt.Errorf("piece %d, %q, has score %v: %w", id, p.text, p.score, tensor.ErrCorrupt)
		case p.kind < spNormal || p.kind > spByte:
			return fmt.Errorf("piece %d, %q, is of type %d: %w", id, p.text, p.kind, tensor.ErrCorrupt)
		}
		if first, ok := seen[p.text]; ok {
			return fmt.Errorf("pieces %d and %d are both %q: %w", first, id, p.text, tensor.ErrCorrupt)
		}
		seen[p.text] = id
		switch p.kind {
		case spUnknown:
			if unknown >= 0 {
				return fmt.Errorf("pieces %d and %d are both the unknown one: %w", unknown, id, tensor.ErrCorrupt)
			}
			unknown = id
		case spByte:
			byteTokens++
		}
	}
	if unknown < 0 {
		return fmt.Errorf("no piece is the unknown one: %w", tensor.ErrCorrupt)
	}
	if m.trainer.byteFallback && byteTokens != 256 {
		return fmt.Errorf("byte_fallback with %d pieces for bytes: %w", byteTokens, tensor.ErrCorrupt)
	}
	return nil
}
