package announce

import (
	"net/netip"
	"slices"

	"github.com/miekg/dns"
)

// Lifetimes in seconds, RFC 6762 §10: two minutes for records with a host's name, 75
// minutes for the rest.
const (
	hostTTL   = 120
	otherTTL  = 4500
	legacyTTL = 10 // at most, in answers to resolvers that know nothing of mDNS (§6.7)
)

const (
	serviceType = "_http._tcp.local."
	allServices = "_services._dns-sd._udp.local."
	// cacheFlush is the bit of a record's class by which it replaces cached records of
	// its name and type; in a question it requests a unicast answer.
	cacheFlush = 1 << 15
	classMask  = cacheFlush - 1
)

// records are the announced records of one link. Reverse names (in-addr.arpa) are not
// among them: they belong to the machine's own responder, and Avahi, which every
// Raspberry Pi runs, falls silent when somebody else has them too.
type records struct {
	services *dns.PTR
	pointer  *dns.PTR
	service  *dns.SRV
	text     *dns.TXT
	address  []dns.RR // A and AAAA
	noHost   *dns.NSEC
	noMore   *dns.NSEC // of the instance
}

func recordsOf(instance, host string, port int, prefixes []netip.Prefix) records {
	header := func(name string, kind uint16, ttl uint32) dns.RR_Header {
		return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: ttl}
	}
	r := records{
		services: &dns.PTR{Hdr: header(allServices, dns.TypePTR, otherTTL), Ptr: serviceType},
		pointer:  &dns.PTR{Hdr: header(serviceType, dns.TypePTR, otherTTL), Ptr: instance},
		service:  &dns.SRV{Hdr: header(instance, dns.TypeSRV, hostTTL), Port: uint16(port), Target: host}, //nolint:gosec // a port, from 1 to 65535
		text:     &dns.TXT{Hdr: header(instance, dns.TypeTXT, otherTTL), Txt: []string{"version=1.0"}},
		noHost:   &dns.NSEC{Hdr: header(host, dns.TypeNSEC, hostTTL), NextDomain: host},
		noMore:   &dns.NSEC{Hdr: header(instance, dns.TypeNSEC, otherTTL), NextDomain: instance, TypeBitMap: []uint16{dns.TypeTXT, dns.TypeSRV}},
	}
	for _, p := range prefixes {
		if p.Addr().Is4() {
			r.address = append(r.address, &dns.A{Hdr: header(host, dns.TypeA, hostTTL), A: p.Addr().AsSlice()})
		} else {
			r.address = append(r.address, &dns.AAAA{Hdr: header(host, dns.TypeAAAA, hostTTL), AAAA: p.Addr().AsSlice()})
		}
	}
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		if slices.ContainsFunc(r.address, func(record dns.RR) bool { return record.Header().Rrtype == kind }) {
			r.noHost.TypeBitMap = append(r.noHost.TypeBitMap, kind)
		}
	}
	return r
}

// all are the records of an announcement.
func (r records) all() []dns.RR { return append(r.own(), r.services) }

// own are the records to withdraw at shutdown. The type of service is not among them: other
// hosts may offer it, too.
func (r records) own() []dns.RR { return append(r.unique(), r.pointer) }

// unique are the records that nobody else may have; a probe proposes these.
func (r records) unique() []dns.RR {
	return slices.Concat([]dns.RR{r.service, r.text}, r.address)
}

// answers are the records for a question, in the answer section; if a name of ours lacks
// the type, the NSEC record says which types it has (§6.1).
func (r records) answers(q dns.Question) []dns.RR {
	if class := q.Qclass & classMask; class != dns.ClassINET && class != dns.ClassANY {
		return nil
	}
	var found []dns.RR
	for _, record := range r.all() {
		header := record.Header()
		if sameName(q.Name, header.Name) && (q.Qtype == header.Rrtype || q.Qtype == dns.TypeANY) {
			found = append(found, record)
		}
	}
	for _, record := range []*dns.NSEC{r.noHost, r.noMore} {
		if len(found) == 0 && sameName(q.Name, record.Hdr.Name) {
			found = append(found, record)
		}
	}
	return found
}

// names are the records of all names that a link has at the moment.
type names []records

// wanted returns the records that answer those questions of a message that which selects, but
// for the ones that its sender knows. A message may have thousands of questions and known
// answers, so the latter are searched once for each record and not for each question.
func (all names) wanted(m *dns.Msg, which func(dns.Question) bool) []dns.RR {
	var found []dns.RR
	for _, q := range m.Question {
		if which(q) {
			for _, r := range all {
				for _, record := range r.answers(q) {
					found = appendUnique(found, record)
				}
			}
		}
	}
	return slices.DeleteFunc(found, func(record dns.RR) bool {
		return slices.ContainsFunc(m.Answer, func(known dns.RR) bool { // with at least half of its lifetime left (§7.1)
			return known.Header().Ttl >= record.Header().Ttl/2 && dns.IsDuplicate(known, record)
		})
	})
}

// additional are the records for the additional section (RFC 6763 §12), which save questions.
func (all names) additional(answers []dns.RR) []dns.RR {
	var more []dns.RR
	add := func(records ...dns.RR) {
		for _, record := range records {
			if !contains(answers, record) {
				more = appendUnique(more, record)
			}
		}
	}
	for _, r := range all {
		for _, answer := range answers {
			switch {
			case dns.IsDuplicate(answer, r.pointer):
				add(r.service, r.text)
			case dns.IsDuplicate(answer, r.service), contains(r.address, answer):
			default:
				continue
			}
			add(r.address...)
			add(r.noHost)
		}
	}
	return more
}

// shared reports whether others may have records of this name and type too.
func shared(record dns.RR) bool {
	name := record.Header().Name
	return sameName(name, serviceType) || sameName(name, allServices)
}

// contains reports whether a record is among others, whatever their lifetimes.
func contains(others []dns.RR, record dns.RR) bool {
	return slices.ContainsFunc(others, func(other dns.RR) bool { return dns.IsDuplicate(other, record) })
}

func appendUnique(records []dns.RR, record dns.RR) []dns.RR {
	if contains(records, record) {
		return records
	}
	return append(records, record)
}

// sameName compares names as DNS does: without regard to the case of ASCII.
func sameName(a, b string) bool {
	return len(a) == len(b) && dns.CanonicalName(a) == dns.CanonicalName(b)
}

// withCacheFlush returns records for multicast: those that are ours alone have the bit by
// which they replace cached ones.
func withCacheFlush(of []dns.RR) []dns.RR {
	return changed(of, func(header *dns.RR_Header, shared bool) {
		if !shared {
			header.Class |= cacheFlush
		}
	})
}

// withTTL returns records with lifetimes of most seconds or fewer.
func withTTL(of []dns.RR, most uint32) []dns.RR {
	return changed(of, func(header *dns.RR_Header, _ bool) { header.Ttl = min(most, header.Ttl) })
}

func changed(of []dns.RR, change func(header *dns.RR_Header, shared bool)) []dns.RR {
	copies := make([]dns.RR, len(of))
	for i, record := range of {
		copies[i] = dns.Copy(record)
		change(copies[i].Header(), shared(record))
	}
	return copies
}

// ordered are records as class, type and uncompressed data, sorted, by which the records that two
// hosts propose for one name are compared (§8.2).
func ordered(of []dns.RR) []string {
	keys := make([]string, 0, len(of))
	wire := make([]byte, dns.MaxMsgSize)
	for _, record := range of {
		record = dns.Copy(record)
		record.Header().Name, record.Header().Ttl = ".", 0
		n, err := dns.PackRR(record, wire, 0, nil, false)
		if err != nil {
			continue // a record that cannot be packed was not received either
		}
		// After the root's one byte: type, class, lifetime, length, data.
		kind, class, data := wire[1:3], wire[3:5], wire[11:n]
		keys = append(keys, string(class)+string(kind)+string(data))
	}
	slices.Sort(keys)
	return keys
}
