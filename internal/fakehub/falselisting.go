package fakehub

import (
	"strings"
)

// lie falsifies a listing.
func lie(f *Rule, list []listed) []listed {
	if f == nil || !f.Fault.listing() {
		return list
	}
	if f.Fault == ListNames {
		names := f.Names
		if names == nil {
			names = HostileNames
		}
		o, _ := memory([]byte("{}")).as(false)
		for _, n := range names {
			list = append(list, listed{n, o})
		}
		return list
	}
	for i, l := range list {
		if f.Files != "" && !glob(f.Files, l.name) {
			continue
		}
		o := *l.object
		if f.Fault == ListSize {
			o.size += f.Bytes
			if f.Bytes == 0 {
				o.size++
			}
		} else {
			o.sha256, o.blob = other(o.sha256), other(o.blob)
		}
		list[i].object = &o
	}
	return list
}

// other returns a different digest of the same form.
func other(digest string) string {
	if digest == "" {
		return ""
	}
	last := "0"
	if strings.HasSuffix(digest, "0") {
		last = "1"
	}
	return digest[:len(digest)-1] + last
}
