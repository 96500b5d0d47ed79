// SPDX-License-Identifier: Apache-2.0

// Program dashboard holds a dashboard against Grafana's own schema: its types, and those of the panels and the queries
// that ours has.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func main() {
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	known := cog.NewRuntime()
	known.RegisterPanelcfgVariant(stat.VariantConfig())
	known.RegisterPanelcfgVariant(table.VariantConfig())
	known.RegisterPanelcfgVariant(timeseries.VariantConfig())
	known.RegisterDataqueryVariant(prometheus.VariantConfig())

	// What is missing, of another type, or unknown.
	var strict dashboard.Dashboard
	if err := said(strict.UnmarshalJSONStrict(text)); err != nil {
		return err
	}
	// What has a value that it may not have.
	var d dashboard.Dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		return err
	}
	if err := d.Validate(); err != nil {
		return err
	}
	// What the above lets pass: other types of panels, queries without a source, and the configuration of fields.
	var raw struct {
		Panels []struct {
			FieldConfig json.RawMessage
			Targets     []json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	for i, p := range raw.Panels {
		if p := d.Panels[i].Panel; p == nil || p.Options == nil {
			return fmt.Errorf("panels[%d]: no panel with options", i)
		} else if _, known := known.ConfigForPanelcfgVariant(p.Type); !known {
			return fmt.Errorf("panels[%d]: unknown type %q", i, p.Type)
		}
		var f dashboard.FieldConfigSource
		if err := said(f.UnmarshalJSONStrict(p.FieldConfig)); err != nil {
			return fmt.Errorf("panels[%d].fieldConfig.%w", i, err)
		}
		for _, target := range p.Targets {
			var q prometheus.Dataquery
			if err := said(q.UnmarshalJSONStrict(target)); err != nil {
				return fmt.Errorf("panels[%d].targets.%w", i, err)
			}
			if q.Datasource == nil {
				return fmt.Errorf("panels[%d].targets: a query without a source", i)
			}
		}
	}
	return nil
}

// said is an error that has words: in this version, a strict reading may give one without where nothing is wrong.
func said(err error) error {
	if err != nil && err.Error() == "" {
		return nil
	}
	return err
}
