use super::*;
use base::types::Timestamp;
use events::event::{self, ActorKind, AuditEvent, AuditPruned, LinkPrinted};

fn entry(event: impl Into<AuditEvent>) -> AuditEntry {
    AuditEntry {
        time: Timestamp::from_millis(1),
        actor: ActorKind::Gateway.into(),
        event: event.into(),
    }
}

/// The frames of a log with these events, and its head.
fn log(entries: &[AuditEntry]) -> (Vec<u8>, ChainHead) {
    let epoch: Epoch = "e".parse().unwrap();
    let mut chain = Chain::new(ChainHead::default(), &epoch);
    let mut encoder = Framer::new(&epoch, SessionId::AUDIT);
    let mut frames = Vec::new();
    let mut last = ChainHead::default();
    for (entry, seq) in entries.iter().zip(1..) {
        chain.add(seq, entry, |event, head| {
            encoder.frame(&mut frames, seq, event, entry.time);
            last = head;
        });
    }
    (frames, last)
}

fn verify(frames: &[u8], first: u64, head: Option<ChainHead>) -> Result<(u64, u64), ChainError> {
    let mut verifier = Verifier::default();
    for event in event::events(frames, first) {
        verifier.check(&event)?;
    }
    verifier.finish(head).map(|(first, last)| (first, last.seq))
}

fn printed(key: &str) -> AuditEntry {
    entry(LinkPrinted {
        key_id: key.to_owned(),
    })
}

#[test]
fn an_intact_chain_verifies_under_any_epoch() {
    let (frames, head) = log(&[printed("a"), printed("b"), printed("c")]);
    assert_eq!(verify(&frames, 1, Some(head)), Ok((1, 3)));
    let mut restored = bytes::BytesMut::new();
    for event in event::events(&frames, 1) {
        event.write_with_epoch(&mut restored, &"other".parse().unwrap());
    }
    assert_eq!(verify(&restored, 1, Some(head)), Ok((1, 3)));
    assert_eq!(verify(b"", 1, None), Ok((0, 0)));
    assert_eq!(ChainHead::from_record(&head.to_record().into()), Some(head));
}

#[test]
fn a_changed_removed_or_reordered_event_is_found() {
    let (frames, head) = log(&[printed("a"), printed("b"), printed("c")]);
    let ends: Vec<usize> = event::ends(&frames).collect();
    let [first, second, third] = [
        &frames[..ends[0]],
        &frames[ends[0]..ends[1]],
        &frames[ends[1]..],
    ];
    let text = String::from_utf8(frames.clone()).unwrap();
    let changed = |from: &str, to: &str| text.replace(from, to).into_bytes();
    assert_eq!(
        verify(&changed("\"a\"", "\"x\""), 1, Some(head)),
        Err(ChainError::Broken(2))
    );
    assert_eq!(
        verify(&changed("\"c\"", "\"x\""), 1, Some(head)),
        Err(ChainError::LastChanged(3))
    );
    let without_the_second = [first, third].concat();
    assert_eq!(
        verify(&without_the_second, 1, Some(head)),
        Err(ChainError::Broken(2))
    );
    let without_the_third = [first, second].concat();
    assert_eq!(
        verify(&without_the_third, 1, Some(head)),
        Err(ChainError::Truncated {
            found: 2,
            expected: 3
        })
    );
    assert_eq!(verify(&frames, 1, None), Err(ChainError::NoHead));
    assert_eq!(
        verify(&frames[ends[0]..], 2, Some(head)),
        Err(ChainError::Missing(2))
    );
    assert_eq!(
        verify(&[second, first, third].concat(), 1, Some(head)),
        Err(ChainError::Broken(1))
    );
}

#[test]
fn a_pruned_log_needs_its_pruned_event() {
    let (frames, head) = log(&[
        printed("a"),
        printed("b"),
        entry(AuditPruned { through_seq: 1 }),
    ]);
    let first = event::ends(&frames).next().unwrap();
    assert_eq!(verify(&frames[first..], 2, Some(head)), Ok((2, 3)));
    let second = event::ends(&frames).nth(1).unwrap();
    assert_eq!(
        verify(&frames[second..], 3, Some(head)),
        Err(ChainError::Missing(3))
    );
}
