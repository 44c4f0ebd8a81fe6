package assemble

import "github.com/llmexport/llmexport/publish/about"

// probeMeasures are the divergences on the probe of a calibration, which may be nil.
func probeMeasures(c *about.Calibration) []about.Measure {
	if c == nil {
		return nil
	}
	rows := []about.Measure{{Name: "kl_probe", Value: &c.ProbeKL}}
	if c.PredictedKL > 0 {
		rows = append(rows, about.Measure{Name: "kl_predicted", Value: &c.PredictedKL})
	}
	return rows
}
