package disk

// writable returns nil: on Windows, the mode of a directory does not contain its access rights.
func writable(string) error { return nil }
