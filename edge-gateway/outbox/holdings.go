package outbox

// maxHolders bounds the nodes that are counted, and with them memory.
const maxHolders = 20_000

// holdings counts each node's waiting records, so that no node crowds out the others. Nodes
// beyond maxHolders count as one, so that invented ids share one part.
type holdings struct {
	nodes map[string]int
	total int
}

// others is the key of the shared count; it is not a valid node id.
const others = ""

func (h *holdings) of(node string) int {
	if n, ok := h.nodes[node]; ok || len(h.nodes) < maxHolders {
		return n
	}
	return h.nodes[others]
}

func (h *holdings) add(node string, n int) {
	if h.nodes == nil {
		h.nodes = map[string]int{}
	}
	h.total += n
	if _, ok := h.nodes[node]; !ok && (n < 0 || len(h.nodes) >= maxHolders) {
		node = others
	}
	if h.nodes[node] += n; h.nodes[node] <= 0 {
		delete(h.nodes, node)
	}
}

// fair reports whether a node may have another record, given the bytes occupied and free. A
// node may hold as much as is free: alone it gets half of the outbox, k busy nodes get
// 1/(k+1) each (dynamic thresholds; Choudhury and Hahne, 1998).
func (h *holdings) fair(node string, occupied, free int64) bool {
	return int64(h.of(node))*occupied <= free*int64(h.total)
}
