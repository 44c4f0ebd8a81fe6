package disk

// writable is known only by trying: rights are not in a directory's mode.
func writable(string) error { return nil }
