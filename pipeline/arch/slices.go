package arch

// Slices is how a picture becomes an overview and slices of it in the tower of MiniCPM-V, each a view with its own height and width in patches.
// Every view becomes as many rows as there are Queries. Attention within the layers is that of a view. Learned positions are a square, of
// which a patch takes the one at the same part of an edge as in the view, rounded down.
//
//	k = KeyNorm(Enter · x)
//	x = O · attention(Q · QueryNorm(Queries), K · (k + place), V · k)
//
// Half of the elements of place are those of the column of a patch, the others those of its row: sines and cosines of its number times each
// of Frequencies.
type Slices struct {
	// Number and Slice are the words around the number of a picture, and around each slice. The overview is between Start and End.
	Number, Slice      [2]string
	Queries            Weight // [rows, width]
	Enter              Linear // [width, Hidden]
	QueryNorm, KeyNorm *Norm
	Attention          Attention
	Frequencies        []float64 // a quarter of width
}

// weights calls f with every slot that needs a tensor.
func (s *Slices) weights(f func(Weight)) {
	f(s.Queries)
	s.Enter.weights(f)
	s.QueryNorm.vectors(f)
	s.KeyNorm.vectors(f)
	s.Attention.linears(func(_ string, l *Linear) {
		if l.Weight.Tensor != "" {
			l.weights(f)
		}
	})
}
