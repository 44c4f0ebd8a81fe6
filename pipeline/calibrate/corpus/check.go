package corpus

import "context"

// Check reads a file as Build does, without encoding it, and checks its digest, its form and every document. resolve is
// [Options].Resolve.
func Check(ctx context.Context, data Data, resolve func(path string) string) error {
	// A missing chat template is not an error here.
	o := Options{Resolve: resolve, Render: func([]Message) (string, error) { return "", nil }}
	d, err := open(ctx, data, &o)
	if err != nil {
		return err
	}
	return d.closer.Close()
}
