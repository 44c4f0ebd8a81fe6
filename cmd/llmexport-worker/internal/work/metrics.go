package work

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	promclient "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
	"github.com/uber-go/tally/v4"
	"github.com/uber-go/tally/v4/prometheus"
	"go.temporal.io/sdk/client"
	sdktally "go.temporal.io/sdk/contrib/tally"
)

// Metrics serves metrics in Prometheus form at http://ADDRESS/metrics until stop is called: those of the SDK, which begin with
// temporal_, and our own, which begin with llmexport_.
func Metrics(ctx context.Context, address string) (h client.MetricsHandler, stop func() error, err error) {
	registry := promclient.NewRegistry()
	log := zerolog.Ctx(ctx)
	reporter := prometheus.NewReporter(prometheus.Options{
		Registerer: registry, Gatherer: registry, DefaultTimerType: prometheus.HistogramTimerType,
		OnRegisterError: func(err error) { log.Debug().Err(err).Msg("a metric is left out") },
	})
	scope, closer := tally.NewRootScope(tally.ScopeOptions{
		CachedReporter: reporter, Separator: prometheus.DefaultSeparator, SanitizeOptions: &sdktally.PrometheusSanitizeOptions,
	}, time.Second)
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("metrics: %w", err), closer.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }() // ends with Close
	log.Info().Str("address", l.Addr().String()).Msg("metrics are served")
	stop = func() error { return errors.Join(s.Close(), closer.Close()) }
	return sdktally.NewMetricsHandler(sdktally.NewPrometheusNamingScope(scope)), stop, nil
}
