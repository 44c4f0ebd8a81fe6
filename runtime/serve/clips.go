package serve

import (
	"encoding/base64"
	"errors"
	"strings"

	"github.com/llmexport/llmexport/runtime/template"
)

// readAudio reads a part of content that is a clip: a file in the request.
func readAudio(part *template.Object) (attachment, error) {
	for name := range part.All() {
		if name != "type" && name != "input_audio" {
			return attachment{}, errors.New("this server does not support " + name + " of a part")
		}
	}
	member, _ := part.Get("input_audio")
	o, ok := member.(*template.Object)
	if !ok {
		return attachment{}, errors.New("input_audio must be an object with data and format")
	}
	var encoded, format string
	for name, v := range o.All() {
		text, ok := v.(string)
		switch {
		case !ok:
			return attachment{}, errors.New(name + " of input_audio must be a text")
		case name == "data":
			encoded = text
		case name == "format":
			format = text
		default:
			return attachment{}, errors.New("this server does not support " + name + " of input_audio")
		}
	}
	const formats = "format must be wav or flac"
	switch strings.ToLower(format) {
	case "wav", "flac":
	case "":
		return attachment{}, errors.New(formats)
	default:
		return attachment{}, errors.New("this server does not read " + format + ": " + formats)
	}
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(data) == 0 {
		return attachment{}, errors.New("the data of a clip must be the file in base64, without data: and an address")
	}
	return attachment{clip: true, data: data}, nil
}
