//! The cost of each step of an event on one thread: lines, envelope, frame, append, reader, fold.
//!
//! `cargo bench --bench micro`. Compare the results of two builds on an idle machine. The results of a single
//! run are not meaningful.

use std::hint::black_box;
use std::sync::Arc;

use base::shutdown::Shutdown;
use base::types::{Ids, PromptId, SessionId, Timestamp, UserId};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use events::event::{Event, Framer, SessionUpdate};
use log::eventlog::{EventLog, Item, Records, Run, SessionLog, Start};
use log::limits::Limits;
use log::store::MemoryStore;
use sessions::transcript::{SessionFold, TurnFold};
use wire::acp::UpdateLine;
use wire::jsonrpc::{self, LineDecoder};

const LINE_CAP: usize = 1 << 20;
const DEPTH: usize = 128;
/// The approximate number of lines in one read of a pipe.
const LINES: usize = 230;

fn line(number: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"sess-1","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"The quick brown fox jumps over the lazy dog. The quick {number:08}"}}}},"_meta":{{"bench":"0000000000000000@{number:08}"}}}}}}"#
    )
}

fn block() -> String {
    (0..LINES).map(|number| line(number) + "\n").collect()
}

fn framer(c: &mut Criterion) {
    let bytes = block();
    let mut group = c.benchmark_group("framer");
    group.throughput(Throughput::Elements(LINES as u64));
    group.bench_function("lines", |b| {
        let mut lines = LineDecoder::new(LINE_CAP);
        b.iter(|| {
            lines
                .read_buffer(64 << 10)
                .extend_from_slice(bytes.as_bytes());
            let block = lines.take_block();
            lines
                .line_ranges(&block)
                .map_while(Result::ok)
                .map(|line| line.len())
                .sum::<usize>()
        });
    });
    group.finish();
}

fn envelope(c: &mut Criterion) {
    let text = line(7);
    let mut group = c.benchmark_group("envelope");
    group.throughput(Throughput::Elements(1));
    group.bench_function("scanned", |b| {
        b.iter(|| UpdateLine::scan(black_box(text.as_bytes()), 0..text.len(), DEPTH).is_some());
    });
    group.bench_function("parsed", |b| {
        b.iter(|| jsonrpc::parse(black_box(text.as_bytes()), DEPTH).is_ok());
    });
    group.finish();
}

/// Calls `each` with the events of a block.
fn events(block: &str, each: impl FnOnce(&[Event<'_>])) {
    let mut lines = Vec::new();
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', block.as_bytes()) {
        lines.push(UpdateLine::scan(block.as_bytes(), start..end, DEPTH).expect("it is an update"));
        start = end + 1;
    }
    let event = |line: &UpdateLine| {
        let meta = line.meta.clone().map(|meta| block[meta].as_bytes());
        SessionUpdate::chunk(
            Some(PromptId::new(1)),
            block[line.update.clone()].as_bytes(),
            meta,
            false,
        )
    };
    let events: Vec<Event<'_>> = lines.iter().map(event).collect();
    each(&events);
}

fn sse_frame(c: &mut Criterion) {
    let ids = Ids::system();
    let mut framer = Framer::new(&ids.epoch(), ids.session());
    let mut group = c.benchmark_group("sse frame");
    group.throughput(Throughput::Elements(LINES as u64));
    let text = block();
    let now = Timestamp::from_millis(1_795_299_303_123);
    events(&text, |events| {
        let mut out = Vec::with_capacity(1 << 20);
        group.bench_function("framed", |b| {
            b.iter(|| {
                out.clear();
                for (seq, event) in (1_000_000..).zip(events) {
                    framer.frame(&mut out, seq, event, now);
                }
                out.len()
            });
        });
    });
    group.finish();
}

/// A session in an in-memory log.
fn session(runtime: &tokio::runtime::Runtime) -> (EventLog, SessionLog) {
    runtime.block_on(async {
        let ids = Ids::system();
        let store = Arc::new(MemoryStore::new(ids.clone()));
        let fatal = Box::new(|why: &str| panic!("{why}"));
        let id: SessionId = ids.session();
        let log = EventLog::start(
            store,
            ids,
            Arc::new(Limits::default()),
            Shutdown::new(),
            fatal,
        )
        .expect("a thread is started");
        let session = log
            .session(&UserId::owner(), id)
            .await
            .expect("memory is read");
        (log, session)
    })
}

fn log(c: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime is made");
    let text = block();
    let mut group = c.benchmark_group("log");
    group.throughput(Throughput::Elements(LINES as u64));
    events(&text, |events| {
        group.bench_function("append and commit", |b| {
            let (_log, session) = session(&runtime);
            b.iter(|| {
                session.append_all(events.iter().copied());
                runtime
                    .block_on(session.wait(session.appended()))
                    .expect("the log is open");
            });
        });
        group.bench_function("read", |b| {
            let (_log, session) = session(&runtime);
            session.append_all(events.iter().copied());
            runtime
                .block_on(session.wait(session.appended()))
                .expect("the log is open");
            b.iter_batched(
                || session.reader(Start::Beginning),
                |mut reader| {
                    runtime.block_on(async {
                        let mut bytes = 0;
                        while let Item::Run(run) = reader.next().await.expect("memory is read") {
                            bytes += run.frames.len();
                        }
                        bytes
                    })
                },
                BatchSize::SmallInput,
            );
        });
    });
    group.finish();
}

fn fold(c: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime is made");
    let (_log, session) = session(&runtime);
    let text = block();
    events(&text, |events| {
        for event in events {
            session.append(event, Records::default());
        }
    });
    let runs = runtime.block_on(async {
        session
            .wait(session.appended())
            .await
            .expect("the log is open");
        session.read(0, usize::MAX).await.expect("memory is read")
    });
    let mut group = c.benchmark_group("transcript fold");
    group.throughput(Throughput::Elements(LINES as u64));
    group.bench_function("turn", |b| {
        b.iter(|| {
            let mut fold = TurnFold::default();
            for frame in runs.iter().flat_map(Run::events) {
                fold.event(&frame);
            }
            fold
        });
    });
    group.bench_function("session", |b| {
        b.iter(|| {
            let mut fold = SessionFold::default();
            runs.iter()
                .flat_map(Run::events)
                .filter(|frame| fold.event(frame))
                .count()
        });
    });
    group.finish();
}

criterion_group!(micro, framer, envelope, sse_frame, log, fold);
criterion_main!(micro);
