package detect

// Bound sets how many nodes are cached.
func (f *Finder) Bound(nodes int) { f.rooms.most = nodes }
