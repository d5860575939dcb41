package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// List prices in US dollars, region tier 1, without discounts, and the free tier per
// month and billing account. The page links the sources.
const (
	pubsubPerTiB    = 40.0
	pubsubFreeGiB   = 10.0
	pubsubMinBilled = 1000.0 // fewest bytes billed for a request
	runPerCPU       = 0.000024
	runPerGiB       = 0.0000025
	runPerMillion   = 0.40
	runFreeCPU      = 180_000.0 // vCPU-seconds
	runFreeGiB      = 360_000.0 // GiB-seconds
	runFreeCalls    = 2e6
	runMinBilled    = 0.1      // fewest seconds billed for a request
	instanceCPU     = 0.000018 // billed by instance, busy or not
	instanceGiB     = 0.000002
	instanceFreeCPU = 240_000.0
	instanceFreeGiB = 450_000.0
	idle            = 0.0000025 // of a CPU-second and of a GiB-second of an instance that is kept
	sqlCPUHour      = 0.0413
	sqlGiBHour      = 0.007
	sqlMicroHour    = 0.0105 // db-f1-micro
	sqlPerGiB       = 0.17   // SSD; a standby doubles it, and the machine
	sqlMinGiB       = 10.0
	sqlBackupGiB    = 0.08
	logPerGiB       = 0.50
	logFreeGiB      = 50.0
	egressPerGiB    = 0.12
	buildPerMinute  = 0.016 // E2_HIGHCPU_8
	alertCondition  = 0.10  // announced for 2026, as the next one
	alertSeries     = 0.35  // per million that conditions ask for
	registryPerGiB  = 0.10
	storageActive   = 0.02
	storageOld      = 0.01 // a partition not changed for 90 days
	storageFreeGiB  = 10.0
	writePerGiB     = 0.025
	writeFreeGiB    = 2048.0
	queryPerTiB     = 6.25
	queryFreeTiB    = 1.0
	queryMinBilled  = 10 * mib
)

const (
	kib = 1024.0
	mib = 1024 * kib
	gib = 1024 * mib
	tib = 1024 * gib
)

// Assumptions about use. They are meant to be changed.
const (
	interval       = 30.0                // seconds between a node's readings
	month          = 730.0               // hours
	days           = month / 24          // of a month
	alertShare     = 0.001               // readings that raise an alert
	cpu            = 1.0                 // of an instance
	memory         = 0.5                 // GiB of an instance
	perInstance    = 1000.0              // messages a second; measured: several times that
	pageNodes      = 50.0                // nodes on one open dashboard
	openHours      = 8.0                 // hours a day that it is open
	poll           = 15.0                // seconds between its requests for the overview
	pageShare      = 0.2                 // of the time that it shows another page than the overview
	visitsPerHour  = 30.0                // visits to the day and the week of twelve sensors, and to six other pages
	idleSpan       = 300.0               // seconds in which the requests of an idle page are counted
	apiPerInstance = 100.0               // requests a second that an instance of the API takes
	block          = 128 * mib           // smallest unit that clustering can skip
	oldShare       = 0.01                // charts of a day that is older than the raw days
	keptMonths     = 12.0                // readings are kept for ever; the figure is that after a year
	activeMonths   = 3.0                 // of them at the full price
	rawDays        = 9.0                 // of readings in PostgreSQL: eight, and one until it is dropped
	rawRow         = 207.0               // bytes of each with its indexes, measured
	hourRow        = 200.0               // bytes of an hourly aggregate with its index, measured
	rowBytes       = 2 + 12 + 2 + 8 + 24 // two strings, a timestamp and two floats, as BigQuery counts them
	pushAttributes = 120.0               // bytes of attributes, message id and timestamp, as Pub/Sub counts them
	requestLog     = 1000.0              // bytes of the log of a request
	minuteLog      = 800.0               // bytes of what an instance of a function logs each minute
	answerBytes    = 10 * kib            // of an answer of the API, compressed, on average
	uptimeChecks   = 6 * month * 60      // requests: from six places each minute
	conditions     = 22.0                // of alerts, looked at each half minute
	backupShare    = 2.0                 // of the data, in all daily backups: they are increments
	registryGiB    = 2.0                 // images of the last 20 releases
	buildMinutes   = 60.0                // one release with its checks
	nightlyMinutes = 600.0 * days        // ten hours each night, the most that it may take
)

// machine is a Cloud SQL machine.
type machine struct {
	Name     string
	CPU, GiB float64 // none of db-f1-micro, which has a price of its own
	Standby  bool
}

// database is the machine for so many nodes; docs/operations.md says how that was found.
func database(nodes int, small bool) machine {
	switch {
	case small:
		return machine{Name: "db-f1-micro"}
	case nodes <= 1_000:
		return machine{"db-custom-1-3840", 1, 3.75, false}
	case nodes <= 20_000:
		return machine{"db-custom-4-15360", 4, 15, true}
	default:
		return machine{"db-custom-16-61440", 16, 60, true}
	}
}

// monthlyCost is the cost of one month, in dollars.
type monthlyCost struct {
	Nodes                            int
	Small                            bool    // terraform's size
	Readings                         float64 // in the month
	Database                         machine
	SQL, PubSub, BigQuery            float64 // SQL and BigQuery with what they keep after a year
	ByRequest, ByInstance, Functions float64 // Functions: the cheaper of both
	API, Logs, Egress, Upkeep        float64 // Upkeep: alerts, images and a release
	PushLogs, Nightly                float64 // not in Total: what request logs of the functions would cost; each night
	Chart, Month                     float64 // MiB that a chart of an old day, and GiB that 30 days of all nodes scan
	Total, PerNodeYear               float64
}

// compute is the cost with so many nodes, whose messages have so many bytes.
func compute(nodes int, small bool, message float64) monthlyCost {
	b := monthlyCost{Nodes: nodes, Small: small, Database: database(nodes, small)}
	rate := float64(nodes) / interval
	b.Readings = rate * month * 3600
	b.PubSub = pubsub(b.Readings, message)
	b.ByRequest, b.ByInstance = functions(rate, b.Readings), functionsByInstance(rate, b.Readings)
	b.Functions = min(b.ByRequest, b.ByInstance)
	storedGiB := b.Readings * rowBytes / gib // of one month
	active, old := storedGiB*activeMonths, storedGiB*(keptMonths-activeMonths)
	b.BigQuery = max(0, active*storageActive+old*storageOld-storageFreeGiB*storageActive) + max(0, storedGiB-writeFreeGiB)*writePerGiB

	day := b.Readings / days * rowBytes
	open := math.Ceil(float64(nodes)/pageNodes) * openHours * days // hours of dashboards
	b.Month = 30 * day / gib
	chart := 2 * scannedBytes(day) // a day of some time zone
	b.Chart = chart / mib
	// Of charts, one at a visit, the other half are of weeks.
	b.BigQuery += max(0, open*visitsPerHour/2*oldShare*chart/tib-queryFreeTiB) * queryPerTiB
	visit, untouched := pageRequests()
	requests := open * (3600/poll + visitsPerHour*visit + 3600/idleSpan*pageShare*untouched)
	served := busy(requests/(openHours*days*3600), apiPerInstance, openHours*days*3600)
	// Without the free tier, which the functions use up.
	b.API = served*(cpu*runPerCPU+memory*runPerGiB) + requests/1e6*runPerMillion
	b.API += uptimeChecks * (runMinBilled*(cpu*runPerCPU+memory*runPerGiB) + runPerMillion/1e6)
	if !small {
		b.API += (month*3600 - uptimeChecks*runMinBilled) * (cpu + memory) * idle // of the instance that is always there
	}

	copies := 1.0
	if b.Database.Standby {
		copies = 2
	}
	b.SQL = month * copies * (b.Database.CPU*sqlCPUHour + b.Database.GiB*sqlGiBHour)
	if small {
		b.SQL = month * sqlMicroHour
	}
	dataGiB := b.Readings/days*rawDays*rawRow/gib + float64(nodes)*month*keptMonths*hourRow/gib
	b.SQL += max(sqlMinGiB, dataGiB)*copies*sqlPerGiB + dataGiB*backupShare*sqlBackupGiB

	logged := (requests+uptimeChecks)*requestLog + 2*math.Ceil(rate/perInstance)*month*60*minuteLog
	b.Logs = max(0, logged/gib-logFreeGiB) * logPerGiB
	b.PushLogs = max(0, (logged+2*b.Readings*requestLog)/gib-logFreeGiB)*logPerGiB - b.Logs
	b.Egress = requests * answerBytes / gib * egressPerGiB
	b.Upkeep = conditions*(alertCondition+month*120/1e6*alertSeries) + registryGiB*registryPerGiB + buildMinutes*buildPerMinute
	b.Nightly = nightlyMinutes * buildPerMinute

	b.Total = b.SQL + b.PubSub + b.Functions + b.API + b.BigQuery + b.Logs + b.Egress + b.Upkeep
	b.PerNodeYear = 12 * b.Total / float64(nodes)
	return b
}

// requests are what pages ask for besides the overview, by operation: at a visit, and in
// five minutes in which nobody touches them. They are counted in the browser, by
// run/dashboard/e2e/requests.spec.ts.
//
//go:embed requests.json
var requests []byte

// pageRequests are the requests of the page that makes most of them: at a visit, and in five minutes.
func pageRequests() (visit, untouched float64) {
	var pages map[string]map[string]map[string]float64
	if err := json.Unmarshal(requests, &pages); err != nil {
		panic(err) // of the file that is compiled in
	}
	most := func(when string) (most float64) {
		for _, operations := range pages[when] {
			sum := 0.0
			for _, n := range operations {
				sum += n
			}
			most = max(most, sum)
		}
		return most
	}
	return most("visits"), most("five_minutes")
}

// busy returns for how many of the seconds in which requests come at a rate, at random, instances are
// billed that take so many a second each: an instance is billed while it has at least one
// request, and each counts as a tenth of a second.
func busy(rate, each, seconds float64) float64 {
	return (1 - math.Exp(-rate*runMinBilled)) * math.Ceil(rate/each) * seconds
}

// messageBytes is the size of a message of topic data with a full window, by
// the codec that the gateway uses.
func messageBytes() (float64, error) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 123456000, time.UTC)
	d := wire.Data{Reading: reading.Reading{
		NodeID: "esp32-7f3a90", MessageID: "9f86d081", Time: at, Temperature: 21.5, Humidity: 41.2,
	}}
	for i := range reading.MaxWindow { // some 10 ms early or late, and a few tenths up or down
		d.Recent.Age = append(d.Recent.Age, float64(reading.MaxWindow-i)*interval+float64(i*7919%20_000-10_000)/1e6)
		d.Recent.Temperature = append(d.Recent.Temperature, 21.5+float64(i*31%7)/10)
		d.Recent.Humidity = append(d.Recent.Humidity, 41.2+float64(i*17%11)/10)
	}
	data, err := wire.EncodeData(d)
	if err != nil {
		return 0, fmt.Errorf("size of a message: %w", err)
	}
	return float64(len(data)) + pushAttributes, nil
}

// pubsub bills each message when it is published and for each of its two
// subscribers, each in a request of its own.
func pubsub(readings, message float64) float64 {
	volume := readings * 3 * max(message, pubsubMinBilled)
	volume += readings * alertShare * 2 * pubsubMinBilled
	return max(0, volume-pubsubFreeGiB*gib) / tib * pubsubPerTiB
}

// functions bills the functions by request. ingest and detect take each reading.
func functions(rate, readings float64) float64 {
	seconds := 2*busy(rate, perInstance, month*3600) + busy(rate*alertShare, perInstance, month*3600)
	calls := readings * (2 + alertShare)
	return max(0, seconds*cpu-runFreeCPU)*runPerCPU +
		max(0, seconds*memory-runFreeGiB)*runPerGiB +
		max(0, calls-runFreeCalls)/1e6*runPerMillion
}

// functionsByInstance bills the instances of ingest and detect all month; storealert and train
// stay billed by request.
func functionsByInstance(rate, readings float64) float64 {
	seconds := 2 * math.Ceil(rate/perInstance) * month * 3600
	alerts := busy(rate*alertShare, perInstance, month*3600)
	return max(0, seconds*cpu-instanceFreeCPU)*instanceCPU + max(0, seconds*memory-instanceFreeGiB)*instanceGiB +
		max(0, alerts*cpu-runFreeCPU)*runPerCPU + max(0, alerts*memory-runFreeGiB)*runPerGiB + max(0, readings*alertShare-runFreeCalls)/1e6*runPerMillion
}

// scannedBytes estimates how much of a partition a query for one node reads: the block that
// holds the node.
func scannedBytes(partition float64) float64 { return max(queryMinBilled, min(partition, block)) }
