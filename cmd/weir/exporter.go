// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	toolkit "github.com/prometheus/exporter-toolkit/web"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weir/internal/change"
	"weir/internal/cli"
	"weir/internal/exporter"
	"weir/internal/hint"
)

func newExporterCommand() *cobra.Command {
	var state, listen, textfile, web string
	cmd := &cobra.Command{
		Use:   "exporter",
		Short: "The queues, connections, findings and goal for Prometheus",
		Long: `Answers Prometheus at http://ADDRESS/metrics, or writes a file that
node_exporter reads.

It tells each queueing discipline, each tin of CAKE, and DualPI2's L and C. It
tells the RTT of this host's TCP connections above their minimum, by device and
congestion control, and who limits them. Findings of weir doctor have their
codes. Last, it says if the goal is in force, drifted or not confirmed.
docs/fleet.md lists all metrics.

Queues are read at each scrape, connections every 15 seconds, findings and the
goal every 30. How many series there are does not depend on the connections.

Exporter changes nothing and needs no root, except to look into a BPF queue. It
listens on this host alone, unless --listen says otherwise. With --web-config it
takes TLS, and wants passwords or certificates: that file is as in other
exporters. systemd can hand over its socket: weir-exporter.socket.

Exit status: 0 told to end, 1 failed, 2 wrong usage.`,
		Example: `  weir exporter
  weir exporter --listen 192.0.2.1:4749 --web-config web.yml
  weir exporter --textfile /var/lib/node_exporter/weir.prom`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if textfile != "" && (cmd.Flags().Changed("listen") || web != "") {
				return cli.Usage("weir exporter --textfile FILE", "--listen and --web-config exclude --textfile")
			}
			if err := toolkit.Validate(web); err != nil {
				return hint.Wrap(fmt.Errorf("%s: %w", web, err), "docs/fleet.md, which has an example")
			}
			if err := checkListen("--listen", listen, "tcp", "127.0.0.1:4749"); err != nil {
				return err
			}
			if textfile != "" {
				if !strings.HasSuffix(textfile, ".prom") {
					return cli.Usage("--textfile name.prom", "--textfile %s: node_exporter reads *.prom alone",
						textfile)
				}
				if err := cli.Writable(textfile); err != nil {
					return hint.Wrap(err, "a file in a folder that is there and can be written")
				}
			}
			ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			reader, err := exporter.Open(change.Open(state), func(line string) {
				fmt.Fprintln(cmd.ErrOrStderr(), line)
			})
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
				listener, err := metricsListener(listen)
				if err != nil {
					try := "--listen ADDRESS:PORT, with an address of this host: ip address lists them"
					switch {
					case errors.Is(err, unix.EADDRINUSE):
						try = "--listen ADDRESS:PORT, one that is free"
					case errors.Is(err, unix.EACCES):
						try = "--listen ADDRESS:PORT, with a port above 1023, or run it as root"
					}
					return hint.Wrap(err, try)
				}
				scheme := "http"
				if web != "" {
					scheme = "http(s)" // as the file says, which is read for each connection anew
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "Listening:  %s://%s/metrics\n", scheme, listener.Addr())
				go func() { failed <- serveMetrics(ctx, listener, registry, web); stop() }()
			}
			reader.Run(ctx) // here, since a network namespace belongs to a thread
			return <-failed
		},
	}
	f := cmd.Flags()
	stateDir(cmd, &state, change.Dir, "`directory` of the journal")
	f.StringVar(&listen, "listen", "127.0.0.1:4749", "`address` and port to answer at")
	f.StringVar(&textfile, "textfile", "", "write this `file` every 15 s instead: name.prom")
	f.StringVar(&web, "web-config", "", "`file` for TLS and passwords, as in other exporters: web.yml")
	cmd.MarkFlagFilename("web-config", "yml", "yaml")
	cmd.MarkFlagFilename("textfile", "prom")
	cmd.RegisterFlagCompletionFunc("listen", cobra.NoFileCompletions)
	return cmd
}

// metricsListener is systemd's socket, if it has handed one over, or a new one.
func metricsListener(address string) (net.Listener, error) {
	const first = 3 // sd_listen_fds(3)
	if pid, _ := strconv.Atoi(os.Getenv("LISTEN_PID")); pid == os.Getpid() && os.Getenv("LISTEN_FDS") == "1" {
		return net.FileListener(os.NewFile(first, "tcp"))
	}
	return net.Listen("tcp", address)
}

// serveMetrics answers until it is told to end, as a file says who may ask and how; "" for everybody.
func serveMetrics(ctx context.Context, listener net.Listener, registry *prometheus.Registry, web string) error {
	const patience = 10 * time.Second // with who asks
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "<!doctype html><title>weir</title><a href=\"metrics\">Metrics of this host</a>\n")
	})
	server := &http.Server{Handler: localNames(mux), ReadHeaderTimeout: patience, ReadTimeout: patience,
		WriteTimeout: patience, MaxHeaderBytes: 16 << 10}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	quiet := slog.New(slog.DiscardHandler)
	err := toolkit.Serve(listener, server, &toolkit.FlagConfig{WebConfigFile: &web}, quiet)
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// localNames refuses requests over loopback that name another host: a page in a browser on this machine could send
// them, with a name of its own that it has led to 127.0.0.1 (DNS rebinding).
func localNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		at, err := netip.ParseAddrPort(fmt.Sprint(local))
		name := strings.TrimSuffix((&url.URL{Host: r.Host}).Hostname(), ".")
		_, noAddress := netip.ParseAddr(name)
		own, _ := os.Hostname()
		known := name == "" || noAddress == nil || strings.EqualFold(name, "localhost") || strings.EqualFold(name, own)
		if err == nil && at.Addr().IsLoopback() && !known {
			http.Error(w, "ask for localhost, or for an address", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// writeMetrics writes the file, whole each time, until it is told to end.
func writeMetrics(ctx context.Context, file string, registry *prometheus.Registry) error {
	const every = 15 * time.Second
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := prometheus.WriteToTextfile(file, registry); err != nil {
			return hint.Wrap(fmt.Errorf("%s cannot be written: %w", file, err),
				"a file in a folder that is there and can be written")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
