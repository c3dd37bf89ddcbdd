//! The spans that are exported over OTLP. They are independent of the spans of log records, which are far more.
//!
//! Before [`init`], and for a trace that its client does not sample, no span exists: [`TraceSpan::begin`] returns `None`.

use std::str::FromStr as _;
use std::sync::OnceLock;
use std::time::Duration;

use opentelemetry::trace::{
    SpanContext, SpanId, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState,
    Tracer as _, TracerProvider as _,
};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    Sampler, SdkTracer, SdkTracerProvider, Span, SpanData, SpanProcessor,
};
use prost::Message as _;
use tokio::sync::mpsc;

use super::resource::RESOURCE;

pub use opentelemetry::trace::SpanKind;

/// The number of ended spans that wait for their export. Spans beyond it are lost.
const MAX_QUEUED: usize = 4096;
/// The number of spans in one request to the collector.
const MAX_BATCH: usize = 512;

static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// Starts the recording of spans. Returns their queue, which the caller exports. `None` if a previous call has it.
pub fn init() -> Option<EndedSpans> {
    let (sender, queue) = mpsc::channel(MAX_QUEUED);
    let provider = SdkTracerProvider::builder()
        .with_resource(RESOURCE.clone())
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
        .with_span_processor(Enqueue(sender))
        .build();
    // The tracer keeps the provider alive.
    TRACER.set(provider.tracer("acp-gateway")).ok()?;
    Some(EndedSpans(queue))
}

/// Whether spans are recorded.
pub fn is_enabled() -> bool {
    TRACER.get().is_some()
}

/// Passes ended spans on to the task that exports them. The processor for batches of the SDK would start a thread that no stop
/// waits for, and that has no runtime for the HTTP client.
#[derive(Debug)]
struct Enqueue(mpsc::Sender<SpanData>);

impl SpanProcessor for Enqueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        // A span must not wait for a slow collector.
        let _ = self.0.try_send(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The queue of ended spans.
#[derive(Debug)]
pub struct EndedSpans(mpsc::Receiver<SpanData>);

impl EndedSpans {
    /// Removes a batch of spans, as a request of OTLP in protobuf. `None` if no span waits.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let mut batch = Vec::new();
        while batch.len() < MAX_BATCH
            && let Ok(span) = self.0.try_recv()
        {
            batch.push(span);
        }
        if batch.is_empty() {
            return None;
        }
        let resource = (&*RESOURCE).into();
        let resource_spans = group_spans_by_resource_and_scope(batch, &resource);
        Some(ExportTraceServiceRequest { resource_spans }.encode_to_vec())
    }
}

/// A span. It ends when it is dropped, at the latest.
#[derive(Debug)]
pub struct TraceSpan(Context);

impl TraceSpan {
    /// A span below that of a client, or the first one of a trace. `client`: `traceparent` and `tracestate` of W3C Trace Context, which
    /// `wire::acp::TraceContext` has validated.
    pub fn begin(
        name: String,
        kind: SpanKind,
        client: Option<(&str, Option<&str>)>,
    ) -> Option<Self> {
        let tracer = TRACER.get()?;
        let client = client.and_then(|(traceparent, state)| remote(traceparent, state));
        let parent = client.map_or_else(Context::new, |client| {
            Context::new().with_remote_span_context(client)
        });
        Self::below(tracer, &parent, name, kind)
    }

    /// A part of this span.
    pub fn child(&self, name: String) -> Option<Self> {
        Self::below(TRACER.get()?, &self.0, name, SpanKind::Internal)
    }

    fn below(tracer: &SdkTracer, parent: &Context, name: String, kind: SpanKind) -> Option<Self> {
        let builder = tracer.span_builder(name).with_kind(kind);
        let context = parent.with_span(builder.start_with_context(tracer, parent));
        context.span().is_recording().then_some(Self(context))
    }

    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        self.0.span().set_attribute(KeyValue::new(key, value));
    }

    /// Sets an attribute that the semantic conventions define as a list.
    pub fn set_list(&self, key: &'static str, value: &'static str) {
        let list = Array::String(vec![StringValue::from(value)]);
        self.set(key, Value::Array(list));
    }

    /// Marks the span as failed. `error` is a code: texts can contain what a person or an agent wrote.
    pub fn fail(&self, error: &'static str) {
        self.set("error.type", error);
        self.0.span().set_status(Status::error(error));
    }

    pub fn end(&self) {
        self.0.span().end();
    }

    pub fn trace_id(&self) -> String {
        self.0.span().span_context().trace_id().to_string()
    }

    pub fn traceparent(&self) -> String {
        let span = self.0.span();
        let context = span.span_context();
        let flags = context.trace_flags().to_u8();
        format!(
            "00-{}-{}-{flags:02x}",
            context.trace_id(),
            context.span_id()
        )
    }

    pub fn tracestate(&self) -> Option<String> {
        let state = self.0.span().span_context().trace_state().header();
        (!state.is_empty()).then_some(state)
    }
}

/// The span of a valid `traceparent`.
fn remote(traceparent: &str, state: Option<&str>) -> Option<SpanContext> {
    let mut parts = traceparent.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = u8::from_str_radix(parts.next()?, 16).ok()?;
    let flags = TraceFlags::new(flags & TraceFlags::SAMPLED.to_u8());
    let state = state.and_then(|state| TraceState::from_str(state).ok());
    Some(SpanContext::new(
        trace,
        span,
        flags,
        true,
        state.unwrap_or_default(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    /// The process has one tracer, so one test has all cases.
    #[test]
    fn spans_exist_only_after_the_start_and_for_sampled_traces() {
        let begin = |client| TraceSpan::begin("a".to_owned(), SpanKind::Server, client);
        assert!(begin(Some((PARENT, None))).is_none(), "before the start");
        let mut ended = init().unwrap();
        assert!(init().is_none(), "the queue has one owner");
        assert_eq!(ended.take(), None);

        let unsampled = PARENT.replace("-01", "-00");
        assert!(begin(Some((&unsampled, None))).is_none());
        let span = begin(Some((PARENT, Some("v=1")))).unwrap();
        let trace = &PARENT[..36];
        assert!(span.traceparent().starts_with(trace) && span.traceparent().ends_with("-01"));
        assert_ne!(span.traceparent(), PARENT);
        assert_eq!(span.tracestate().as_deref(), Some("v=1"));
        let child = span.child("b".to_owned()).unwrap();
        assert!(child.traceparent().starts_with(trace));
        drop((span, child));
        let request = ExportTraceServiceRequest::decode(&*ended.take().unwrap()).unwrap();
        let spans = &request.resource_spans[0].scope_spans[0].spans;
        let [first, second] = &**spans else {
            panic!("{spans:?}")
        };
        assert_eq!((&*first.name, &*second.name), ("a", "b"));
        assert_eq!(second.parent_span_id, first.span_id);
        assert_eq!(ended.take(), None);
    }

    #[test]
    fn full_queue_loses_spans_and_does_not_wait() {
        let (sender, mut queue) = mpsc::channel(1);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(Enqueue(sender))
            .build();
        let tracer = provider.tracer("a");
        for _ in 0..3 {
            drop(tracer.start("b"));
        }
        assert!(queue.try_recv().is_ok() && queue.try_recv().is_err());
    }
}
