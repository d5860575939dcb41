package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

//go:embed report.html.tmpl
var reportText string

// line is a figure with its name.
type line struct{ Name, Value string }

// lines are the figures for a person.
func (e evaluation) lines() []line {
	model := func(name string) string {
		if name == "" {
			return "none"
		}
		return name
	}
	lines := []line{
		{"readings", fmt.Sprintf("%d, of which %d with enough before them to be scored, %d anomalous", e.Readings, e.Scored, e.Anomalous)},
		{"ROC AUC of the score", ratio(e.AUC)},
		{"best F1, score and rules", ratio(e.BestF1)},
		{"F1 as published", fmt.Sprintf("%s (precision %s, recall %s) at threshold %.4f", ratio(e.F1), ratio(e.Precision), ratio(e.Recall), e.Threshold)},
		{"readings judged anomalous", fmt.Sprintf("%.2f %%", 100*e.Alarm)},
		{"detector", e.Reason},
		{"forecast skill, temperature", percent(e.Skill.Temperature)},
		{"forecast skill, humidity", percent(e.Skill.Humidity)},
		{"forecast skill, ramps", fmt.Sprintf("%s on %d readings", percent(e.Skill.Ramps), e.Skill.RampRows)},
		{"forecasts measured", fmt.Sprintf("%d; RMSE %.4f °C, without a model %.4f °C; mean error of humidity %.4f %%", e.Skill.Rows, e.Skill.RMSE, e.Skill.Still, e.Skill.MAE)},
		{"forecasters", fmt.Sprintf("temperature %s, humidity %s: %s", model(e.Forecast.Temperature), model(e.Forecast.Humidity), e.Forecast.Reason)},
	}
	return lines
}

// String is the figures, one a line.
func (e evaluation) String() string {
	var b strings.Builder
	for _, l := range e.lines() {
		fmt.Fprintf(&b, "%-28s %s\n", l.Name, l.Value)
	}
	return b.String()
}

func ratio(value *float64) string {
	if value == nil {
		return "not measured"
	}
	return fmt.Sprintf("%.3f", *value)
}

func percent(value *float64) string {
	if value == nil {
		return "not measured"
	}
	return fmt.Sprintf("%+.1f %%", 100**value)
}

// page is the report: the figures and what they look like, in one file.
func (e evaluation) page() ([]byte, error) {
	var plots []template.HTML
	for _, drawn := range []func() (*plot.Plot, error){e.rocPlot, e.thresholdPlot, e.forecastPlot} {
		p, err := drawn()
		if err != nil {
			return nil, fmt.Errorf("plot: %w", err)
		}
		if p == nil {
			continue
		}
		canvas := vgsvg.New(16*vg.Centimeter, 11*vg.Centimeter)
		p.Draw(draw.New(canvas))
		var svg bytes.Buffer
		if _, err := canvas.WriteTo(&svg); err != nil {
			return nil, fmt.Errorf("plot: %w", err)
		}
		_, image, _ := strings.Cut(svg.String(), "<svg")   // without the XML prologue, which HTML has no place for
		plots = append(plots, template.HTML("<svg"+image)) //nolint:gosec // our own plot; its texts are ours and numbers
	}
	page, err := template.New("report").Parse(reportText)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	var b bytes.Buffer
	if err := page.Execute(&b, map[string]any{"E": e, "Lines": e.lines(), "Plots": plots}); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return b.Bytes(), nil
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Add(plotter.NewGrid())
	return p
}

// most is how many points of a curve are drawn.
const most = 500

func curve(points []point, c color.Color) (*plotter.Line, error) {
	var xys plotter.XYs
	stride := max(1, len(points)/most)
	for i := 0; i < len(points); i += stride {
		xys = append(xys, plotter.XY{X: points[i].x, Y: points[i].y})
	}
	if len(points) > 0 {
		last := points[len(points)-1]
		xys = append(xys, plotter.XY{X: last.x, Y: last.y})
	}
	l, err := plotter.NewLine(xys)
	if err != nil {
		return nil, fmt.Errorf("curve: %w", err)
	}
	l.Color, l.Width = c, vg.Points(1.5)
	return l, nil
}

func ink() color.Color    { return color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff} }
func second() color.Color { return color.RGBA{R: 0xc4, G: 0x4e, B: 0x1d, A: 0xff} }
func pale() color.Color   { return color.Gray{Y: 0x99} }

func (e evaluation) rocPlot() (*plot.Plot, error) {
	if e.AUC == nil {
		return nil, nil //nolint:nilnil // nothing to draw is no fault
	}
	p := newPlot(fmt.Sprintf("ROC, area %.3f", *e.AUC), "ordinary readings flagged, share", "anomalies flagged, share")
	chance, err := curve([]point{{0, 0}, {1, 1}}, pale())
	if err != nil {
		return nil, err
	}
	l, err := curve(e.roc, ink())
	if err != nil {
		return nil, err
	}
	p.Add(chance, l)
	return p, nil
}

// thresholdPlot shows what every threshold would have given.
func (e evaluation) thresholdPlot() (*plot.Plot, error) {
	if e.BestF1 == nil {
		return nil, nil //nolint:nilnil // nothing to draw is no fault
	}
	p := newPlot(fmt.Sprintf("Score alone: precision and recall by threshold (published: %.3f)", e.Threshold), "threshold", "share")
	var precision, recall []point
	said, right := 0.0, 0.0
	for _, s := range sortByScore(e.scores) {
		said++
		if s.truth {
			right++
		}
		precision = append(precision, point{s.score, right / said})
		recall = append(recall, point{s.score, right / float64(e.Anomalous)})
	}
	a, err := curve(precision, ink())
	if err != nil {
		return nil, err
	}
	b, err := curve(recall, second())
	if err != nil {
		return nil, err
	}
	at, err := curve([]point{{e.Threshold, 0}, {e.Threshold, 1}}, pale())
	if err != nil {
		return nil, err
	}
	p.Add(a, b, at)
	p.Legend.Add("precision", a)
	p.Legend.Add("recall", b)
	p.Legend.Top = true
	return p, nil
}

// forecastPlot shows the error of forecast and persistence as time goes on.
func (e evaluation) forecastPlot() (*plot.Plot, error) {
	if e.Skill.Rows == 0 {
		return nil, nil //nolint:nilnil // nothing to draw is no fault
	}
	p := newPlot("Temperature 20 s ahead: error against persistence", "tenths of the time measured", "RMSE / RMSE of persistence")
	var points []point
	for i, b := range e.Skill.blocks {
		if b[1] > 0 {
			points = append(points, point{float64(i + 1), math.Sqrt(b[0] / b[1])})
		}
	}
	l, err := curve(points, ink())
	if err != nil {
		return nil, err
	}
	still, err := curve([]point{{1, 1}, {float64(len(e.Skill.blocks)), 1}}, pale())
	if err != nil {
		return nil, err
	}
	p.Add(l, still)
	p.Legend.Add("forecast", l)
	p.Legend.Add("persistence", still)
	return p, nil
}
