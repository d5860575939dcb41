package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

// i2c answers what a node reads from a chip.
func i2c(s *site, registers func(question string) []byte) border {
	room := s.until(2*time.Minute, nil)
	return func(question []string) (string, bool) {
		switch question[0] {
		case "read", "register":
			var words []string
			for _, b := range registers(strings.Join(question, " ")) {
				words = append(words, strconv.Itoa(int(b)))
			}
			return strings.Join(words, " "), true
		case "write":
			return "", true
		default:
			return room(question)
		}
	}
}

// checkSensor has a node measure with a chip: it sends what the chip measured, or else says
// what is wrong on its console.
func checkSensor(t *testing.T, sensor string, registers func(string) []byte, console string, temperature, humidity, tolerance float64) {
	t.Helper()
	s := newSite(t)
	said := power(t, i2c(s, registers), s.serve()+"SENSOR = \""+sensor+"\"\n")
	sent := s.on("message")
	if console != "" {
		if len(sent) > 0 || !strings.Contains(said, console) {
			t.Errorf("sent %v and said %q", sent, said)
		}
		return
	}
	if len(sent) == 0 || math.Abs(sent[0].Temperature-temperature) > 0.06 || math.Abs(sent[0].Humidity-humidity) > tolerance {
		t.Errorf("sent %v, want %g °C and %g %%\n%s", sent, temperature, humidity, said)
	}
}

// TestNodeReadsAnSHT31 checks against Sensirion's datasheet of the SHT3x: its formulas
// (4.13), and its example of the checksum, CRC(0xBEEF) = 0x92 (4.12).
func TestNodeReadsAnSHT31(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		checksum byte
		console  string // empty for a reading
	}{"in order": {0x92, ""}, "wrong checksum": {0x93, "wrong checksum of the SHT31"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := func(string) []byte { return []byte{0xBE, 0xEF, 0x92, 0xBE, 0xEF, c.checksum} }
			checkSensor(t, "sht31", raw, c.console, -45+175*float64(0xBEEF)/65535, 100*float64(0xBEEF)/65535, 0.051)
		})
	}
}

// bme280 is the calibration of a piece: the temperature's numbers are the example of
// Bosch's datasheet of the BMP280 (3.12), where 519888 is 25.08 °C, the humidity's are of
// the size that pieces have.
type bme280 struct {
	t1             uint16
	t2, t3         int16
	h1, h3         uint8
	h2, h4, h5     int16
	h6             int8
	rawT, rawH, id int
}

// registers are the chip's memory as its datasheet lays it out (table 16 and 18).
func (b bme280) registers(question string) []byte {
	var address, register, size int
	if _, err := fmt.Sscanf(question, "register %d %d %d", &address, &register, &size); err != nil || address != 0x76 {
		return make([]byte, size)
	}
	memory := make([]byte, 256+8)
	little := binary.LittleEndian
	memory[0xD0] = byte(b.id)
	little.PutUint16(memory[0x88:], b.t1)
	little.PutUint16(memory[0x8A:], uint16(b.t2))
	little.PutUint16(memory[0x8C:], uint16(b.t3))
	memory[0xA1] = b.h1
	little.PutUint16(memory[0xE1:], uint16(b.h2))
	memory[0xE3] = b.h3
	memory[0xE4], memory[0xE6] = byte(b.h4>>4), byte(b.h5>>4)
	memory[0xE5] = byte(b.h4&0x0F) | byte(b.h5&0x0F)<<4
	memory[0xE7] = byte(b.h6)
	memory[0xFA], memory[0xFB], memory[0xFC] = byte(b.rawT>>12), byte(b.rawT>>4), byte(b.rawT<<4)
	memory[0xFD], memory[0xFE] = byte(b.rawH>>8), byte(b.rawH)
	return memory[register : register+size]
}

// measured computes in integers, as the datasheet's reference does (4.2.3); the node
// computes in floating point.
func (b bme280) measured() (temperature, humidity float64) {
	adc := int32(b.rawT)
	v1 := ((adc>>3 - int32(b.t1)<<1) * int32(b.t2)) >> 11
	v2 := (((adc>>4 - int32(b.t1)) * (adc>>4 - int32(b.t1)) >> 12) * int32(b.t3)) >> 14
	fine := v1 + v2
	temperature = float64((fine*5+128)>>8) / 100
	v := fine - 76800
	v = ((int32(b.rawH)<<14 - int32(b.h4)<<20 - int32(b.h5)*v + 16384) >> 15) *
		((((((v*int32(b.h6))>>10)*((v*int32(b.h3))>>11+32768))>>10+2097152)*int32(b.h2) + 8192) >> 14)
	v -= (((v >> 15) * (v >> 15) >> 7) * int32(b.h1)) >> 4
	return temperature, float64(min(max(v, 0), 419430400)>>12) / 1024
}

func TestNodeReadsABME280(t *testing.T) {
	t.Parallel()
	piece := bme280{t1: 27504, t2: 26435, t3: -1000, h1: 75, h2: 362, h3: 0, h4: 325, h5: 50, h6: 30, id: 0x60}
	negative := piece
	negative.h5 = -50
	for name, c := range map[string]struct {
		chip       bme280
		rawT, rawH int
		console    string
	}{
		"the datasheet's example":      {piece, 519888, 30000, ""},
		"cold and dry":                 {piece, 400000, 24000, ""},
		"hot and humid":                {piece, 600000, 36000, ""},
		"a negative number":            {negative, 600000, 30000, ""},
		"before the first measurement": {piece, 0x80000, 0x8000, "did not measure"},
		"a BMP280":                     {bme280{id: 0x58}, 519888, 30000, "no BME280"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.chip.rawT, c.chip.rawH = c.rawT, c.rawH
			temperature, humidity := c.chip.measured()
			if c.chip.t1 != 0 && c.rawT == 519888 && temperature != 25.08 {
				t.Fatalf("the reference computes %g °C, the datasheet 25.08", temperature)
			}
			checkSensor(t, "bme280", c.chip.registers, c.console, temperature, humidity, 0.1)
		})
	}
}
