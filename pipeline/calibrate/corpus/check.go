package corpus

import "context"

// Check looks through a file as Build does, without making tokens of it: its digest, its form and every document.
// resolve is that of Options.
func Check(ctx context.Context, data Data, resolve func(path string) string) error {
	// Whether there is a chat template is another question.
	o := Options{Resolve: resolve, Render: func([]Message) (string, error) { return "", nil }}
	d, err := open(ctx, data, &o)
	if err != nil {
		return err
	}
	return d.closer.Close()
}
