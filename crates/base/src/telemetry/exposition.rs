//! The text formats of Prometheus: the exposition format 0.0.4 and OpenMetrics 1.0.
//!
//! `opentelemetry-prometheus-text-exporter` writes the first format only, and depends on a crate whose licence `deny.toml`
//! does not permit.

use std::borrow::Cow;
use std::fmt::{Debug, Write as _};

use opentelemetry::KeyValue;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData, ResourceMetrics};

/// A text format of a scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    Prometheus,
    OpenMetrics,
}

impl TextFormat {
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The name of an instrument in both formats, without the suffix of a counter.
pub(super) fn family_name(name: &str, unit: &str) -> String {
    let name = name.replace('.', "_");
    match unit_name(unit) {
        Some(unit) if !name.ends_with(unit) => format!("{name}_{unit}"),
        _ => name,
    }
}

/// The suffix for a unit (UCUM) of the table of instruments. Counts of objects have none.
fn unit_name(unit: &str) -> Option<&'static str> {
    match unit {
        "s" => Some("seconds"),
        "By" => Some("bytes"),
        _ => None,
    }
}

pub(super) fn write(metrics: &ResourceMetrics, format: TextFormat) -> String {
    let mut text = Text {
        out: String::new(),
        format,
    };
    for scope in metrics.scope_metrics() {
        for metric in scope.metrics() {
            match metric.data() {
                AggregatedMetrics::F64(data) => text.family(metric, data),
                AggregatedMetrics::U64(data) => text.family(metric, data),
                AggregatedMetrics::I64(data) => text.family(metric, data),
            }
        }
    }
    if format == TextFormat::OpenMetrics {
        text.out.push_str("# EOF\n");
    }
    text.out
}

struct Text {
    out: String,
    format: TextFormat,
}

impl Text {
    fn family<T: Copy + Debug>(&mut self, metric: &Metric, data: &MetricData<T>) {
        let family = family_name(metric.name(), metric.unit());
        match data {
            MetricData::Gauge(gauge) => {
                self.header(metric, &family, &family, "gauge");
                for point in gauge.data_points() {
                    self.sample(&family, point.attributes(), None, point.value());
                }
            }
            MetricData::Sum(sum) if sum.is_monotonic() => {
                let total = format!("{family}_total");
                self.header(metric, &family, &total, "counter");
                for point in sum.data_points() {
                    self.sample(&total, point.attributes(), None, point.value());
                }
            }
            MetricData::Sum(sum) => {
                self.header(metric, &family, &family, "gauge");
                for point in sum.data_points() {
                    self.sample(&family, point.attributes(), None, point.value());
                }
            }
            MetricData::Histogram(histogram) => {
                self.header(metric, &family, &family, "histogram");
                let names = ["bucket", "sum", "count"].map(|part| format!("{family}_{part}"));
                let [bucket, sum, count] = &names;
                for point in histogram.data_points() {
                    let bounds = point.bounds().map(|bound| format!("{bound:?}"));
                    let bounds = bounds.chain(["+Inf".to_owned()]);
                    let mut below = 0;
                    for (bound, in_bucket) in bounds.zip(point.bucket_counts()) {
                        below += in_bucket;
                        self.sample(bucket, point.attributes(), Some(&bound), below);
                    }
                    self.sample(sum, point.attributes(), None, point.sum());
                    self.sample(count, point.attributes(), None, point.count());
                }
            }
            // No instrument of the table has this form.
            MetricData::ExponentialHistogram(_) => {}
        }
    }

    /// In OpenMetrics the family of a counter has a name without the suffix of its samples.
    fn header(&mut self, metric: &Metric, family: &str, samples: &str, kind: &str) {
        let name = match self.format {
            TextFormat::Prometheus => samples,
            TextFormat::OpenMetrics => family,
        };
        self.line(format_args!("# HELP {name} {}", metric.description()));
        self.line(format_args!("# TYPE {name} {kind}"));
        if let (TextFormat::OpenMetrics, Some(unit)) = (self.format, unit_name(metric.unit())) {
            self.line(format_args!("# UNIT {name} {unit}"));
        }
    }

    /// `Debug` of a number keeps the point of a float, which OpenMetrics requires in bounds.
    fn sample<'a>(
        &mut self,
        name: &str,
        attributes: impl Iterator<Item = &'a KeyValue>,
        bound: Option<&str>,
        value: impl Copy + Debug,
    ) {
        let labels = attributes.map(|label| {
            let key = label.key.as_str().replace('.', "_");
            format!("{key}=\"{}\"", escape(&label.value.as_str()))
        });
        let bound = bound.map(|bound| format!("le=\"{bound}\""));
        let labels: Vec<String> = labels.chain(bound).collect();
        if labels.is_empty() {
            self.line(format_args!("{name} {value:?}"));
        } else {
            self.line(format_args!("{name}{{{}}} {value:?}", labels.join(",")));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.out, "{line}").expect("a buffer in memory grows");
    }
}

fn escape(text: &str) -> Cow<'_, str> {
    if text.contains(['\\', '"', '\n']) {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        escaped.replace('\n', "\\n").into()
    } else {
        text.into()
    }
}
