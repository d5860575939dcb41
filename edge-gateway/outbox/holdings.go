package outbox

// maxHolders bounds the nodes that are counted, and with them memory.
const maxHolders = 20_000

// holdings counts what each node has waiting, so that no node takes the room of the
// others. Nodes above maxHolders count as one: whoever invents names shares with
// those who do the same.
type holdings struct {
	nodes map[string]int
	total int
}

// others is no valid node id.
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

// fair says whether a node may have one record more when so many bytes are occupied
// and free. A node may hold as much as is free, and not more: the bound of dynamic
// thresholds (Choudhury and Hahne, 1998), by which a single node gets half of the
// outbox, k busy nodes get 1/(k+1) each, and a node that comes last finds as much.
func (h *holdings) fair(node string, occupied, free int64) bool {
	return int64(h.of(node))*occupied <= free*int64(h.total)
}
