package main

import (
	"bytes"
	"cmp"
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

	"coldaisle.dev/run/tools/ml/trial"
)

//go:embed report.html.tmpl
var reportText string

// line is a measurement with its name.
type line struct{ Name, Value string }

// lines are the measurements for a person.
func (e evaluation) lines() []line {
	return []line{
		{"readings", fmt.Sprintf("%d, of which %d with enough before them to be scored, %d anomalous", e.Readings, e.Scored, e.Anomalous)},
		{"ROC AUC of the score", formatted("%.3f", e.AUC, 1)},
		{"best F1, score and rules", formatted("%.3f", e.BestF1, 1)},
		{"F1 as published", fmt.Sprintf("%s (precision %s, recall %s) at threshold %.4f",
			formatted("%.3f", e.F1, 1), formatted("%.3f", e.Precision, 1), formatted("%.3f", e.Recall, 1), e.Threshold)},
		{"readings judged anomalous", fmt.Sprintf("%.2f %%", 100*e.Alarm)},
		{"detector", e.Reason},
		{"forecast skill, temperature", formatted("%+.1f %%", e.Skill.SkillTemperature, 100)},
		{"forecast skill, humidity", formatted("%+.1f %%", e.Skill.SkillHumidity, 100)},
		{"forecasts measured", fmt.Sprintf("%d; RMSE %.4f °C, without a model %.4f °C; mean error of humidity %.4f %%",
			e.Skill.Held, *cmp.Or(e.Skill.RMSETemperature, new(0.0)), e.Skill.Still, *cmp.Or(e.Skill.MAEHumidity, new(0.0)))},
		{"forecasters", fmt.Sprintf("temperature %s, humidity %s: %s", cmp.Or(e.Forecast.Temperature, "none"), cmp.Or(e.Forecast.Humidity, "none"), e.Forecast.Reason)},
	}
}

// String is the measurements, one a line.
func (e evaluation) String() string {
	var b strings.Builder
	for _, l := range e.lines() {
		fmt.Fprintf(&b, "%-28s %s\n", l.Name, l.Value)
	}
	return b.String()
}

// formatted is a value so many times, as far as it is known.
func formatted(format string, value *float64, times float64) string {
	if value == nil {
		return "not measured"
	}
	return fmt.Sprintf(format, times**value)
}

// page is the report: the measurements and their plots in one file.
func (e evaluation) page() ([]byte, error) {
	var plots []template.HTML
	for _, f := range e.figures() {
		plot, err := f.draw()
		if err != nil {
			return nil, fmt.Errorf("plot: %w", err)
		}
		plots = append(plots, plot)
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

// figure is a plot of curves.
type figure struct {
	title, x, y string
	curves      []curve
}

type curve struct {
	name   string // in the legend; empty for none
	color  color.Color
	points []point
}

func ink() color.Color    { return color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff} }
func second() color.Color { return color.RGBA{R: 0xc4, G: 0x4e, B: 0x1d, A: 0xff} }
func pale() color.Color   { return color.Gray{Y: 0x99} }

// figures are the plots of what was measured.
func (e evaluation) figures() (figures []figure) {
	if e.AUC != nil {
		var precision, recall []point
		trial.Sweep(e.scores, func(score float64, flagged, right int) {
			precision = append(precision, point{score, share(right, flagged)})
			recall = append(recall, point{score, share(right, e.Anomalous)})
		})
		figures = append(figures,
			figure{fmt.Sprintf("ROC, area %.3f", *e.AUC), "ordinary readings flagged, share", "anomalies flagged, share", []curve{
				{color: pale(), points: []point{{0, 0}, {1, 1}}}, {color: ink(), points: e.roc},
			}},
			figure{fmt.Sprintf("Score alone: precision and recall by threshold (published: %.3f)", e.Threshold), "threshold", "share", []curve{
				{"precision", ink(), precision}, {"recall", second(), recall}, {color: pale(), points: []point{{e.Threshold, 0}, {e.Threshold, 1}}},
			}})
	}
	var points []point
	for i, ratio := range e.Skill.Ratios {
		if !math.IsNaN(ratio) && !math.IsInf(ratio, 0) {
			points = append(points, point{float64(i + 1), ratio})
		}
	}
	if len(points) > 0 {
		figures = append(figures, figure{"Temperature 20 s ahead: error against persistence", "blocks of the time measured", "RMSE / RMSE of persistence", []curve{
			{"forecast", ink(), points}, {"persistence", pale(), []point{{1, 1}, {float64(len(e.Skill.Ratios)), 1}}},
		}})
	}
	return figures
}

// draw returns a figure as SVG.
func (f figure) draw() (template.HTML, error) {
	const most = 500 // points of a curve
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text, p.Legend.Top = f.title, f.x, f.y, true
	p.Add(plotter.NewGrid())
	for _, c := range f.curves {
		var xys plotter.XYs
		stride := max(1, len(c.points)/most)
		for i, at := range c.points {
			if i%stride == 0 || i+1 == len(c.points) {
				xys = append(xys, plotter.XY{X: at.x, Y: at.y})
			}
		}
		line, err := plotter.NewLine(xys)
		if err != nil {
			return "", fmt.Errorf("curve: %w", err)
		}
		line.Color, line.Width = c.color, vg.Points(1.5)
		p.Add(line)
		if c.name != "" {
			p.Legend.Add(c.name, line)
		}
	}
	canvas := vgsvg.New(16*vg.Centimeter, 11*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return "", fmt.Errorf("canvas: %w", err)
	}
	_, image, _ := strings.Cut(svg.String(), "<svg") // without the XML prologue, which HTML has no place for
	return template.HTML("<svg" + image), nil        //nolint:gosec // our own plot; its texts are ours and numbers
}
