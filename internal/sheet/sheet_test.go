package sheet

import "testing"

func TestBytesText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 bytes", 1023: "1023 bytes", 1024: "1024 bytes (1.0 KiB)", 1_769_494: "1769494 bytes (1.7 MiB)", 1 << 62: "4611686018427387904 bytes (4194304.0 TiB)",
	} {
		if got := Size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
