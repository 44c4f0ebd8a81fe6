package serve

import (
	"encoding/base64"
	"errors"
	"strings"

	"github.com/llmexport/llmexport/runtime/template"
)

// readAudio reads a part of content that is a clip: a file in the request.
func readAudio(part *template.Object) (attachment, error) {
	fields, err := partFields(part, "input_audio", "data and format", "data", "format")
	if err != nil {
		return attachment{}, err
	}
	const formats = "format must be wav or flac"
	switch format := fields["format"]; strings.ToLower(format) {
	case "wav", "flac":
	case "":
		return attachment{}, errors.New(formats)
	default:
		return attachment{}, errors.New("this server does not read " + format + ": " + formats)
	}
	data, err := base64.StdEncoding.DecodeString(fields["data"])
	if err != nil || len(data) == 0 {
		return attachment{}, errors.New("the data of a clip must be the file in base64, without data: and an address")
	}
	return attachment{clip: true, data: data}, nil
}
