package serve

import (
	"encoding/base64"
	"errors"
	"strings"

	"github.com/llmexport/llmexport/runtime/template"
)

// detail is the area that a picture gets if the tower takes any size, by the name that OpenAI has for it.
func detail(name string) (pixels int, err error) {
	switch name {
	case "low":
		return 512 * 512, nil
	case "high", "auto", "":
		return 1 << 20, nil
	}
	return 0, errors.New("detail must be low, high or auto")
}

// readImage reads a part of content that is a picture: data in the request, never an address. The server fetches nothing.
func readImage(part *template.Object) (attachment, error) {
	fields, err := partFields(part, "image_url", "a url", "url", "detail")
	if err != nil {
		return attachment{}, err
	}
	pixels, err := detail(fields["detail"])
	if err != nil {
		return attachment{}, err
	}
	data, err := readDataURL(fields["url"])
	return attachment{data: data, pixels: pixels}, err
}

// readDataURL returns the bytes of data:image/TYPE;base64,DATA.
func readDataURL(address string) ([]byte, error) {
	const example = "data:image/png;base64,DATA"
	scheme, rest, ok := strings.Cut(address, ":")
	if !ok || !strings.EqualFold(scheme, "data") {
		return nil, errors.New("this server fetches no pictures and opens no files: send the picture itself, as " + example)
	}
	kind, data, ok := strings.Cut(rest, ",")
	media, encoded := strings.CutSuffix(strings.ToLower(kind), ";base64")
	if !ok || !encoded || !strings.HasPrefix(media, "image/") {
		return nil, errors.New("the data of a picture must be " + example)
	}
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, errors.New("the data of a picture is not base64")
	}
	return b, nil
}
