package assemble

import (
	"maps"
	"slices"

	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/source"
)

// visit is one shard on its way through: the items that it completes, and the shards that are not needed after it.
type visit struct {
	// shard is the one that has arrived.
	shard string
	// items of the plan, and tied tensors, are complete once it has arrived.
	items []place
	ties  []string
	// drop are the shards that are not needed after it.
	drop []string
	// held is the size of all shards on the disk, in bytes, including the next one, which is being downloaded.
	held int64
}

// place is the index of a part of a plan, and of an item of the part.
type place struct{ part, item int }

// visits lists the shards that items of a plan, and ties, are read from, in the order of their names. Items whose tensors are in
// several shards keep those until the last one has arrived.
func visits(s *source.Source, p *plan.Plan, items []place, ties []string) []visit {
	shardsOf := shardsOf(s)
	used := map[string]bool{}
	need := func(names ...string) (list []string) {
		for _, n := range names {
			list = append(list, shardsOf(n)...)
		}
		slices.Sort(list)
		list = slices.Compact(list)
		for _, shard := range list {
			used[shard] = true
		}
		return list
	}
	needs := make([][]string, len(items)) // of items, then of ties
	for i, k := range items {
		it := &p.Parts[k.part].Items[k.item]
		names := []string{it.Source.Name}
		if it.BiasSource != nil {
			names = append(names, it.BiasSource.Name)
		}
		needs[i] = need(names...)
	}
	for _, n := range ties {
		needs = append(needs, need(n))
	}
	list := make([]visit, 0, len(used))
	at, last := map[string]int{}, map[string]int{}
	for i, shard := range slices.Sorted(maps.Keys(used)) {
		list, at[shard], last[shard] = append(list, visit{shard: shard}), i, i
	}
	for i, shards := range needs {
		k := 0 // a constant needs none
		for _, shard := range shards {
			k = max(k, at[shard])
		}
		for _, shard := range shards {
			last[shard] = max(last[shard], k)
		}
		if len(list) == 0 {
			list = append(list, visit{})
		}
		if v := &list[k]; i < len(items) {
			v.items = append(v.items, items[i])
		} else {
			v.ties = append(v.ties, ties[i-len(items)])
		}
	}
	var held int64
	for i := range list {
		v := &list[i]
		for shard, k := range last {
			if k == i {
				v.drop = append(v.drop, shard)
			}
		}
		slices.Sort(v.drop)
		held += s.Heads[v.shard].Size
		if v.held = held; i+1 < len(list) {
			v.held += s.Heads[list[i+1].shard].Size
		}
		for _, shard := range v.drop {
			held -= s.Heads[shard].Size
		}
	}
	return list
}

// shardsOf returns a function that names the shards which are read for a tensor.
func shardsOf(s *source.Source) func(name string) []string {
	files := map[string]string{}
	for _, t := range s.Checkpoint.Tensors() {
		files[t.Name] = t.File
	}
	views := map[string][]string{}
	for i := range s.Decoder.Views {
		v := &s.Decoder.Views[i]
		views[v.Name] = v.Parts()
	}
	return func(name string) (shards []string) {
		parts, ok := views[name]
		if !ok {
			parts = []string{name}
		}
		for _, n := range parts {
			stored := []string{n}
			if s.Quantized != nil {
				stored = s.Quantized.Parts(n)
			}
			for _, n := range stored {
				shards = append(shards, files[n])
			}
		}
		return shards
	}
}

// all lists the items of a plan.
func all(p *plan.Plan) (list []place) {
	for k, part := range p.Parts {
		for i := range part.Items {
			list = append(list, place{k, i})
		}
	}
	return list
}

// tied lists the tensors that ties compare, sorted.
func tied(s *source.Source) []string {
	list := slices.Concat(slices.Collect(maps.Keys(s.Ties)), slices.Collect(maps.Values(s.Ties)))
	slices.Sort(list)
	return slices.Compact(list)
}

// Streaming returns the bytes that a run downloads if it does not keep the weights, and the most of them that are on the disk
// at once.
func (p *Planned) Streaming() (bytes, held int64) {
	for _, v := range visits(p.Source, p.Plan, all(p.Plan), tied(p.Source)) {
		bytes, held = bytes+p.Source.Heads[v.shard].Size, max(held, v.held)
	}
	return bytes, held
}

// Unseen lists the assumptions that can only be checked once weights are available.
func (p *Planned) Unseen() (list []string) {
	if p.Source.Heads == nil {
		return nil
	}
	for _, dup := range slices.Sorted(maps.Keys(p.Source.Ties)) {
		list = append(list, dup+" is equal to "+p.Source.Ties[dup]+", to which config.json ties it")
	}
	return list
}
