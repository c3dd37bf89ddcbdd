//! A reader receives the log from its start position: every event once and in order, byte for byte.

use std::collections::{BTreeMap, BTreeSet};

use super::logs::{Event, Logs};
use super::{Found, History, Log, Rule, short};

/// A client that reads one session, or several at a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reader {
    pub(crate) name: String,
    /// The sessions that it reads, and the seq after which it began.
    pub(crate) sessions: BTreeMap<String, u64>,
    /// The reader uses `/v1/events`, whose ids are positions in the whole store.
    pub(crate) all: bool,
    pub(crate) frames: Vec<Frame>,
    /// It stopped before the end, so that it may not have seen all.
    pub(crate) stopped: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// It (re)connected, with this id of the last event.
    Connected {
        after: Option<String>,
    },
    /// An event of the log: the id of the frame, and its data.
    Event {
        id: Option<Box<str>>,
        text: Box<str>,
    },
    Reset(Box<str>),
    Problem(Box<str>),
}

impl Reader {
    /// The received events, in order.
    pub(crate) fn events(&self) -> impl Iterator<Item = &str> {
        self.frames.iter().filter_map(|frame| match frame {
            Frame::Event { text, .. } => Some(&**text),
            _ => None,
        })
    }
}

/// The position of one reader in the log of one session.
struct Cursor {
    began: u64,
    next: u64,
    seen: BTreeSet<u64>,
    /// After a reset it begins wherever the log does.
    anywhere: bool,
}

pub(super) fn check(history: &History, logs: &Logs<'_>, found: &mut Found) {
    for reader in &history.readers {
        let cursors = walk(reader, history.resets, logs, found);
        if reader.stopped {
            continue;
        }
        for (session, cursor) in cursors {
            let to = history.logs.get(session).map_or(0, |log: &Log| log.read_to);
            if cursor.next <= to {
                let name = &reader.name;
                let next = cursor.next;
                found.add(
                    Rule::Lost,
                    format!("{name} never saw {next} to {to} of {session}"),
                );
            }
        }
    }
}

fn walk<'a>(
    reader: &'a Reader,
    resets: bool,
    logs: &Logs<'_>,
    found: &mut Found,
) -> BTreeMap<&'a str, Cursor> {
    let name = &reader.name;
    let start = |after: &u64| Cursor {
        began: *after,
        next: after + 1,
        seen: BTreeSet::new(),
        anywhere: false,
    };
    let mut cursors: BTreeMap<&str, Cursor> = reader
        .sessions
        .iter()
        .map(|(session, after)| (&**session, start(after)))
        .collect();
    let mut last = None;
    for frame in &reader.frames {
        let (id, text) = match frame {
            Frame::Connected { .. } | Frame::Problem(_) => continue,
            Frame::Reset(text) => {
                if !resets {
                    found.add(Rule::Reset, format!("{name}: {}", short(text)));
                }
                for cursor in cursors.values_mut() {
                    (cursor.anywhere, cursor.began) = (true, 0);
                    cursor.seen.clear();
                }
                continue;
            }
            Frame::Event { id, text } => (id.as_deref(), text),
        };
        let event = match Event::parse(text) {
            Ok(event) => event,
            Err(error) => {
                found.add(Rule::Changed, format!("{name}: {error}: {}", short(text)));
                continue;
            }
        };
        if !fits(reader.all, id, &event, &mut last) {
            found.add(
                Rule::Id,
                format!("{name}: a frame with the id {id:?}: {}", short(text)),
            );
        }
        let Some(cursor) = cursors.get_mut(&*event.session_id) else {
            found.add(
                Rule::Id,
                format!("{name} does not read this session: {}", short(text)),
            );
            continue;
        };
        cursor.step(name, &event, found);
        match logs
            .get(&*event.session_id)
            .and_then(|log| log.get(&event.seq))
        {
            None => found.add(
                Rule::Lost,
                format!(
                    "{name} saw an event that the log does not have: {}",
                    short(text)
                ),
            ),
            Some(logged) if logged.text != event.text => {
                let ours = short(logged.text);
                let theirs = short(text);
                found.add(
                    Rule::Changed,
                    format!("{name} saw {theirs}, the log has {ours}"),
                );
            }
            Some(_) => {}
        }
    }
    cursors
}

/// Whether a frame's id is the one of its event.
///
/// `last`: the epoch and the number of the last position.
fn fits<'a>(
    all: bool,
    id: Option<&'a str>,
    event: &Event<'_>,
    last: &mut Option<(&'a str, u64)>,
) -> bool {
    if !all {
        return id == Some(&*event.id) && event.epoch().is_some();
    }
    let parts = id.and_then(|id| id.split_once("-g"));
    let Some((epoch, pos)) = parts.and_then(|(epoch, pos)| Some((epoch, pos.parse().ok()?))) else {
        return false;
    };
    let rises = last.is_none_or(|last| epoch == last.0 && pos > last.1);
    *last = Some((epoch, pos));
    rises && event.epoch().is_some()
}

impl Cursor {
    fn step(&mut self, name: &str, event: &Event<'_>, found: &mut Found) {
        let seq = event.seq;
        let next = self.next;
        let session = &event.session_id;
        if !self.seen.insert(seq) || seq <= self.began {
            found.add(
                Rule::Duplicate,
                format!("{name} saw {seq} of {session} again"),
            );
        } else if std::mem::take(&mut self.anywhere) || seq == next {
            self.next = seq + 1;
        } else if seq < next {
            found.add(
                Rule::Reordered,
                format!("{name} saw {seq} of {session} when {next} was next"),
            );
        } else {
            found.add(
                Rule::Gap,
                format!("{name} saw {seq} of {session} when {next} was next"),
            );
            self.next = seq + 1;
        }
    }
}
