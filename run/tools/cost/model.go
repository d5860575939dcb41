package main

import (
	"fmt"
	"math"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// List prices in US dollars, region tier 1, without discounts, and the free tier per
// month and billing account. The page names the sources.
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
	runMinBilled    = 0.1 // fewest seconds billed for a request
	storageActive   = 0.02
	storageOld      = 0.01 // a partition not changed for 90 days
	storageFreeGiB  = 10.0
	writePerGiB     = 0.025
	writeFreeGiB    = 2048.0
	queryPerTiB     = 6.25
	queryFreeTiB    = 1.0
	queryMinBilled  = 10 * mib
	memoryPerGiB    = 30.36 // BI Engine, a GiB for a month
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
	poll           = 30.0                // seconds between its polls
	chartsPerHour  = 12.0                // ranges, buckets and statistics looked at per open dashboard
	chartDays      = 7.0                 // days that such a query covers
	block          = 128 * mib           // smallest unit that clustering can skip
	latestDays     = 1.5                 // day partitions that the last 24 hours touch, the present one half full
	keptMonths     = 12.0                // readings are kept for ever; the figure is that after a year
	activeMonths   = 3.0                 // of them at the full price
	rowBytes       = 2 + 12 + 2 + 8 + 24 // two strings, a timestamp and two floats, as BigQuery counts them
	pushAttributes = 120.0               // bytes of attributes, message id and timestamp, as Pub/Sub counts them
)

// monthlyCost is the cost of one month, in dollars.
type monthlyCost struct {
	Nodes                                  int
	Readings                               float64 // in the month
	PubSub, Functions, Storage, Writes     float64
	Queries                                float64 // on demand
	InMemory                               float64 // queries, when BI Engine caches what the dashboards poll
	LatestScan, InMemoryGiB, QueriedTiB    float64
	Total, TotalInMemory, TotalPerNodeYear float64
}

func compute(nodes int) (monthlyCost, error) {
	b := monthlyCost{Nodes: nodes}
	rate := float64(nodes) / interval
	b.Readings = rate * month * 3600
	message, err := messageBytes()
	if err != nil {
		return monthlyCost{}, err
	}
	b.PubSub = pubsub(b.Readings, message)
	b.Functions = functions(rate, b.Readings)
	storedGiB := b.Readings * rowBytes / gib // of one month
	active, old := storedGiB*activeMonths, storedGiB*(keptMonths-activeMonths)
	b.Storage = active*storageActive + old*storageOld
	b.Storage = max(0, b.Storage-storageFreeGiB*storageActive)
	b.Writes = max(0, storedGiB-writeFreeGiB) * writePerGiB

	day := b.Readings / days * rowBytes
	dashboards := math.Ceil(float64(nodes) / pageNodes)
	onPage := min(pageNodes, float64(nodes))
	b.LatestScan = scannedBytes(day*latestDays, onPage)
	polls := dashboards * openHours * days * 3600 / poll
	charts := dashboards * openHours * days * chartsPerHour
	b.QueriedTiB = (polls*b.LatestScan + charts*chartDays*scannedBytes(day, 1)) / tib
	b.Queries = max(0, b.QueriedTiB-queryFreeTiB) * queryPerTiB
	b.InMemoryGiB = math.Ceil(day * latestDays / gib)
	b.InMemory = min(b.Queries, b.InMemoryGiB*memoryPerGiB+max(0, charts*chartDays*scannedBytes(day, 1)/tib-queryFreeTiB)*queryPerTiB)

	rest := b.PubSub + b.Functions + b.Storage + b.Writes
	b.Total, b.TotalInMemory = rest+b.Queries, rest+b.InMemory
	b.TotalPerNodeYear = 12 * b.TotalInMemory / float64(nodes)
	return b, nil
}

// messageBytes is the size of a message of topic data with a full window, by
// the codec that the gateway uses.
func messageBytes() (float64, error) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 123456000, time.UTC)
	d := wire.Data{Reading: reading.Reading{
		NodeID: "esp32-7f3a90", MessageID: "9f86d081", Time: at, Temperature: 21.5, Humidity: 41.2,
	}}
	for i := range reading.MaxWindow {
		d.Recent.Age = append(d.Recent.Age, float64(reading.MaxWindow-i)*interval)
		d.Recent.Temperature = append(d.Recent.Temperature, 21.5)
		d.Recent.Humidity = append(d.Recent.Humidity, 41.2)
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

// functions bills an instance for as long as it has at least one request, each
// counted as a tenth of a second: that long is an instance busy a second when
// requests come at random. ingest and detect take each reading.
func functions(rate, readings float64) float64 {
	busy := func(rate float64) float64 {
		return (1 - math.Exp(-rate*runMinBilled)) * math.Ceil(rate/perInstance) * month * 3600
	}
	seconds := 2*busy(rate) + busy(rate*alertShare)
	calls := readings * (2 + alertShare)
	return max(0, seconds*cpu-runFreeCPU)*runPerCPU +
		max(0, seconds*memory-runFreeGiB)*runPerGiB +
		max(0, calls-runFreeCalls)/1e6*runPerMillion
}

// scannedBytes estimates how much of partitions of the given size a query for some
// nodes reads: the blocks that hold one of the nodes, which are spread at random.
func scannedBytes(bytes, nodes float64) float64 {
	blocks := math.Ceil(bytes / block)
	hit := blocks * (1 - math.Pow(1-1/blocks, nodes))
	return max(queryMinBilled, min(bytes, hit*block))
}
