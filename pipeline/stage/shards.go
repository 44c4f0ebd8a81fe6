package stage

import (
	"maps"
	"slices"

	"github.com/llmexport/llmexport/pipeline/plan"
)

// visit is one shard on its way through: what it completes, and what is not needed any more behind it.
type visit struct {
	// shard is the one that has come.
	shard string
	// items of the plan and tied tensors have all that they are made of when it is here.
	items []int
	ties  []string
	// drop are the shards that nothing behind needs.
	drop []string
	// held is the size of all shards that are here, in bytes, with the next one that is on its way.
	held int64
}

// visits lists the shards that items of a plan, and ties, are read from, in the order of their names, and what can be done
// with each. Items whose tensors lie in several shards keep those until the last one has come.
func (s *Source) visits(p *plan.Plan, items []int, ties []string) []visit {
	shardsOf := s.shardsOf()
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
	needs := make([][]string, len(items)) // of items, and behind them of ties
	for i, k := range items {
		it := &p.Items[k]
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
		held += s.heads[v.shard].Size
		if v.held = held; i+1 < len(list) {
			v.held += s.heads[list[i+1].shard].Size
		}
		for _, shard := range v.drop {
			held -= s.heads[shard].Size
		}
	}
	return list
}

// shardsOf returns a function that names the shards which are read for a tensor.
func (s *Source) shardsOf() func(name string) []string {
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
func all(p *plan.Plan) []int {
	list := make([]int, len(p.Items))
	for i := range list {
		list[i] = i
	}
	return list
}

// tied lists the tensors that ties compare, sorted.
func (s *Source) tied() []string {
	list := slices.Concat(slices.Collect(maps.Keys(s.ties)), slices.Collect(maps.Values(s.ties)))
	slices.Sort(list)
	return slices.Compact(list)
}

// Streaming is what a run takes from the network that does not keep the weights: the bytes of the shards that it needs, and
// how many of these are on the disk at once, at most.
func (p *Planned) Streaming() (bytes, held int64) {
	for _, v := range p.Source.visits(p.Plan, all(p.Plan), p.Source.tied()) {
		bytes, held = bytes+p.Source.heads[v.shard].Size, max(held, v.held)
	}
	return bytes, held
}

// Unseen says what could not be looked at for want of weights, and is checked when there are some.
func (p *Planned) Unseen() (list []string) {
	if p.Source.heads == nil {
		return nil
	}
	for _, dup := range slices.Sorted(maps.Keys(p.Source.ties)) {
		list = append(list, dup+" is equal to "+p.Source.ties[dup]+", to which config.json ties it")
	}
	return list
}
