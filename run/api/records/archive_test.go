package records

import (
	"archive/zip"
	"context"
	"fmt"
	"io"
	"iter"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store/records"
	"coldaisle.dev/shared/tooltest"
)

// made is a table of readings each 30 seconds.
type made struct {
	readings.Reader

	peak uint64 // of the heap, in bytes
}

func (m *made) Ranges(_ context.Context, nodes []readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return func(yield func(reading.Reading, error) bool) {
		for _, n := range nodes {
			k := 0
			for at := start; at.Before(end); at = at.Add(30 * time.Second) {
				if k++; k%20_000 == 0 {
					var memory runtime.MemStats
					runtime.ReadMemStats(&memory)
					m.peak = max(m.peak, memory.HeapInuse)
				}
				if !yield(reading.Reading{NodeID: n.ID, MessageID: strconv.Itoa(k), Time: at, Temperature: 20 + float64(k%97)/10, Humidity: 40 + float64(k%31)/10}, nil) {
					return
				}
			}
		}
	}
}

// TestRecordInConstantMemory writes the record of a month: at night of 100 sensors, 8.9 million readings.
func TestRecordInConstantMemory(t *testing.T) { //nolint:paralleltest // measures memory
	sensors := 3
	if tooltest.Nightly() {
		sensors = 100
	}
	r := record{room: records.Room{RoomID: 3, Name: "Hall"}, month: "2026-10", start: time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), end: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), over: true, revision: 1}
	for i := range sensors {
		r.members = append(r.members, records.Member{NodeRef: readings.NodeRef{ID: fmt.Sprintf("n%03d", i)}, Name: "Rack", Time: r.end.Sub(r.start)})
	}
	keys := must.Get(ParseKeys("2026-01-01=nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A="))(t)
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	table, began := &made{}, time.Now()
	a := &archive{zip: zip.NewWriter(io.Discard), at: r.end}
	must.Get(a.content(t.Context(), r, table))(t)
	manifest, signature, err := a.sign(r, keys)
	must.Do(t, err)
	must.Do(t, a.finish(manifest, signature))
	took, grown := time.Since(began), int64(table.peak)-int64(before.HeapInuse) //nolint:gosec // bytes
	t.Logf("%d readings in %v, the heap grew by %d KiB at most", sensors*31*2880, took.Round(time.Millisecond), grown>>10)
	must.Equal(t, fmt.Sprintf("the heap grew by %d MiB, 32 at most", grown>>20), true, grown <= 32<<20)
}

// TestCoverageOfQuantitiesThatComeApart expects those of each by its interval; one lacking at times is no series.
func TestCoverageOfQuantitiesThatComeApart(t *testing.T) {
	t.Parallel()
	start, nan := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), reading.Missing()
	r := record{}
	sensors := map[string]*coverage{"apart": {}, "together": {}}
	for minute := range 60 {
		at := start.Add(time.Duration(minute) * time.Minute)
		sensors["apart"].add(reading.Reading{Time: at, Temperature: 20, Humidity: nan})
		if minute%5 == 0 {
			sensors["apart"].add(reading.Reading{Time: at.Add(time.Second), Temperature: nan, Humidity: 40})
		}
		humidity := 40.0
		if minute%20 == 19 {
			humidity = nan
		}
		sensors["together"].add(reading.Reading{Time: at, Temperature: 20, Humidity: humidity})
	}
	for _, id := range []string{"apart", "together"} {
		r.members = append(r.members, records.Member{NodeRef: readings.NodeRef{ID: id}, Name: "Rack", Time: time.Hour})
	}
	must.Equal(t, "coverage", "sensor_id,name,hours_in_room,interval_s,expected,received\napart,Rack,1.00,60,72,72\ntogether,Rack,1.00,60,60,60\n", string(coverageCSV(r, sensors)))

	r.members, sensors = r.members[:1], map[string]*coverage{"apart": {}}
	for i := range 300 { // three at once each quarter of an hour, of which two hours are lost
		if at := start.Add(time.Duration(i/3)*15*time.Minute + time.Duration(i%3)*time.Second); i < 150 || i >= 174 {
			sensors["apart"].add(reading.Reading{Time: at, Temperature: 20, Humidity: 40})
		}
	}
	r.members[0].Time = 25 * time.Hour
	must.Equal(t, "of three at once", "sensor_id,name,hours_in_room,interval_s,expected,received\napart,Rack,25.00,299,301,276\n", string(coverageCSV(r, sensors)))

	sensors["apart"] = &coverage{}
	for at, i := start, 0; i < 700; i++ { // each half minute, of which three of ten are lost
		sensors["apart"].add(reading.Reading{Time: at, Temperature: 20, Humidity: 40})
		at = at.Add(30 * time.Second * time.Duration(1+i%7/4))
	}
	must.Contain(t, "of lost readings", string(coverageCSV(r, sensors)), "\napart,Rack,25.00,30,3000,700\n")
}

// TestStalledClientHoldsNoTurn has a client not read its record: another has the turn meanwhile.
func TestStalledClientHoldsNoTurn(t *testing.T) {
	t.Parallel()
	turns := newTurns()
	read, write := io.Pipe()
	done := must.Get(turns.Acquire(t.Context(), fairqueue.Unknown, 1))(t)
	wrote := make(chan error, 1)
	go func() {
		_, err := client{write, turns, 1, done}.Write([]byte("part"))
		wrote <- err
	}()
	other := must.Get(turns.Acquire(t.Context(), fairqueue.Unknown, 1))(t)
	must.Get(io.ReadFull(read, make([]byte, 4)))(t)
	other()
	must.Do(t, <-wrote)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := turns.Acquire(over, fairqueue.Unknown, 1)
	must.Fail(t, "a second turn", err, context.Canceled)
}

// TestAccountsTakeTurnsWithRecords has account a download four records at once, each of three parts, and then b one:
// between two parts of b are two of a, however many records that downloads.
func TestAccountsTakeTurnsWithRecords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns, order := newTurns(), []rune{}
		for _, account := range "aaaab" {
			go func() {
				done, err := turns.Acquire(t.Context(), fairqueue.Unknown, int64(account))
				must.Do(t, err)
				for range 3 {
					order = append(order, account)
					time.Sleep(time.Second)
					_, _ = client{io.Discard, turns, int64(account), done}.Write(nil) // it never fails
				}
				done()
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		must.Equal(t, "parts", "aabaabaab"+"aaaaaa", string(order))
	})
}

// TestCoverageNamesSensorsAsReadingsDo has a cell that a spreadsheet would take for a formula. Contract 5.4.
func TestCoverageNamesSensorsAsReadingsDo(t *testing.T) {
	t.Parallel()
	r := record{members: []records.Member{{NodeRef: readings.NodeRef{ID: "-2"}, Name: "=1+1"}, {NodeRef: readings.NodeRef{ID: "n"}, Name: "＝1+1"}}}
	want := "sensor_id,name,hours_in_room,interval_s,expected,received\n'-2,'=1+1,0.00,,,0\nn,'＝1+1,0.00,,,0\n"
	must.Equal(t, "coverage.csv", want, string(coverageCSV(r, nil)))
}
