// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/signal"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weir/internal/change"
	"weir/internal/exporter"
)

func newExporterCommand() *cobra.Command {
	var state, listen, textfile string
	cmd := &cobra.Command{
		Use:   "exporter",
		Short: "The queues, connections, findings and goal for Prometheus",
		Long: `Answers Prometheus at http://ADDRESS/metrics, or writes a file that
node_exporter reads.

It tells each queueing discipline, each tin of CAKE, and DualPI2's L and C. It
tells the RTT of this host's TCP connections above their minimum, by device and
congestion control, and who limits them. Findings of weir doctor have their
codes. Last, it says if the goal is in force, drifted or not confirmed.
docs/exporter.md lists all metrics.

Queues are read at each scrape, connections every 15 seconds, findings and the
goal every 30. How many series there are does not depend on the connections.

Exporter changes nothing and needs no root, except to look into a BPF queue. It
listens on this host alone, unless --listen says otherwise. There is neither a
password nor encryption.

Exit status: 0 told to end, 1 failed, 2 wrong usage.`,
		Example: `  weir exporter
  weir exporter --listen 192.0.2.1:4749
  weir exporter --textfile /var/lib/node_exporter/weir.prom`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if textfile != "" && cmd.Flags().Changed("listen") {
				return usage("weir exporter --textfile FILE", "--listen and --textfile exclude each other")
			}
			if _, _, err := net.SplitHostPort(listen); err != nil {
				return usage("--listen 127.0.0.1:4749", "--listen %v", err)
			}
			ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			reader, err := exporter.Open(change.Open(state))
			if err != nil {
				return err
			}
			defer reader.Close()
			registry := prometheus.NewRegistry()
			registry.MustRegister(exporter.New(func() exporter.Look { return reader.Look(ctx) }, version))
			failed := make(chan error, 1)
			if textfile != "" {
				go func() { failed <- writeMetrics(ctx, textfile, registry); stop() }()
			} else {
				listener, err := net.Listen("tcp", listen)
				if err != nil {
					return &hinted{err, "--listen ADDRESS:PORT, one that is free"}
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "Listening:  http://%s/metrics\n", listener.Addr())
				go func() { failed <- serveMetrics(ctx, listener, registry); stop() }()
			}
			reader.Run(ctx) // here, since a network namespace belongs to a thread
			return <-failed
		},
	}
	f := cmd.Flags()
	f.StringVar(&state, "state", change.Dir, "`directory` of the journal")
	f.StringVar(&listen, "listen", "127.0.0.1:4749", "`address` and port to answer at")
	f.StringVar(&textfile, "textfile", "", "write this `file` every 15 s instead: name.prom")
	cmd.MarkFlagDirname("state")
	cmd.MarkFlagFilename("textfile", "prom")
	cmd.RegisterFlagCompletionFunc("listen", cobra.NoFileCompletions)
	return cmd
}

// serveMetrics answers until it is told to end.
func serveMetrics(ctx context.Context, listener net.Listener, registry *prometheus.Registry) error {
	const patience = 10 * time.Second // with who asks
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "<!doctype html><title>weir</title><a href=\"metrics\">Metrics of this host</a>\n")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
		MaxHeaderBytes: 16 << 10}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// writeMetrics writes the file, whole each time, until it is told to end.
func writeMetrics(ctx context.Context, file string, registry *prometheus.Registry) error {
	const every = 15 * time.Second
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := prometheus.WriteToTextfile(file, registry); err != nil {
			return &hinted{fmt.Errorf("%s cannot be written: %w", file, err),
				"a file in a folder that is there and can be written"}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
