//! Children in a pseudo terminal.

use std::time::Duration;

use children::{Limits, PtyChild, PtyReader, PtySize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Bench, SOON, STEP, alive, code, line_of, pid, signal, soon, until};

const SIZE: PtySize = PtySize {
    cols: 100,
    rows: 30,
};

async fn start(bench: &Bench, script: &str) -> (PtyChild, PtyReader) {
    let mut child = bench
        .spawner
        .spawn_pty(bench.shell(script), SIZE)
        .await
        .expect("the child starts");
    let reader = child.reader.take().expect("a new child has its reader");
    (child, reader)
}

/// Reads until the output contains `wanted`.
async fn shown(reader: &mut PtyReader, expected: &str) -> String {
    let mut text = String::new();
    let mut buffer = [0; 1024];
    while !text.contains(expected) {
        let read = soon(reader.read(&mut buffer))
            .await
            .expect("it can be read");
        assert!(read > 0, "it ended before {expected:?}: {text:?}");
        text += &String::from_utf8_lossy(&buffer[..read]);
    }
    text
}

#[tokio::test]
async fn a_program_has_a_terminal_that_is_its_own() {
    let bench = Bench::new();
    let script = "tty; test -t 0 && test -t 1 && test -t 2 && echo three; stty size; echo $TERM; \
                  echo to-tty >/dev/tty; ps -o pid=,pgid=,sid=,tpgid= -p $$; exit 7";
    let (child, mut reader) = start(&bench, script).await;
    let mut out = String::new();
    soon(reader.read_to_string(&mut out))
        .await
        .expect("the end is an end and no error");
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("/dev/pts/"), "{out}");
    assert_eq!(
        lines[1..5],
        ["three", "30 100", "xterm-256color", "to-tty"],
        "{out}"
    );
    let program = child.pid.to_string();
    let ids: Vec<&str> = lines[5].split_whitespace().collect();
    assert_eq!(
        ids, [&*program; 4],
        "it leads a group in the foreground and a session: {out}"
    );
    assert_eq!(soon(child.exited()).await, code(7));
}

#[tokio::test]
async fn terminal_input_and_size_reach_the_program() {
    let bench = Bench::new();
    let (mut child, mut reader) = start(
        &bench,
        "trap 'stty size' WINCH; echo go; read -r line; echo got $line; while :; do sleep 0.05; done",
    )
    .await;
    let mut writer = child.writer.take().expect("a new child has its writer");
    shown(&mut reader, "go\r\n").await;
    writer.write_all(b"hello\n").await.unwrap();
    assert!(
        shown(&mut reader, "got hello\r\n")
            .await
            .contains("hello\r\n"),
        "the terminal echoes"
    );
    child.resize(PtySize { cols: 40, rows: 10 }).unwrap();
    shown(&mut reader, "10 40\r\n").await;
    writer.write_all(b"\x03").await.unwrap();
    assert_eq!(
        soon(child.exited()).await,
        signal("SIGINT"),
        "a typed interrupt reaches the group"
    );
}

#[tokio::test]
async fn stop_sends_term_then_kill_and_no_process_survives() {
    let bench = Bench::with(Limits {
        stop_term_timeout: STEP,
        ..Limits::default()
    });
    let script = "(setsid sh -c 'trap \"\" TERM HUP; echo $$ >runaway; exec sleep 300' &) ; \
                  trap '' TERM HUP; echo >ready; while :; do sleep 0.05; done";
    let (child, _reader) = start(&bench, script).await;
    line_of(&bench.path("ready")).await;
    let runaway = pid(&line_of(&bench.path("runaway")).await);
    assert_eq!(soon(child.stop()).await, signal("SIGKILL"));
    assert!(!alive(runaway));

    let bench = Bench::with(Limits::default());
    let (polite, mut reader) = start(
        &bench,
        "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done",
    )
    .await;
    shown(&mut reader, "ready").await;
    assert_eq!(soon(polite.stop()).await, code(9));
}

#[tokio::test]
async fn dropped_handles_hang_the_terminal_up() {
    let bench = Bench::with(Limits {
        stop_stdin_timeout: SOON * 10,
        ..Limits::default()
    });
    let (child, mut reader) = start(
        &bench,
        "trap 'echo up >hung; exit' HUP; echo ready; while :; do sleep 0.05; done",
    )
    .await;
    shown(&mut reader, "ready").await;
    let program = pid(&child.pid.to_string());
    drop((child, reader));
    assert_eq!(line_of(&bench.path("hung")).await, "up");
    until("the end of the program", || !alive(program)).await;
}

#[tokio::test]
async fn unread_terminal_blocks_only_its_program() {
    let bench = Bench::with(Limits::default());
    let (child, _reader) = start(&bench, "yes").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(alive(pid(&child.pid.to_string())));
    assert_eq!(soon(child.stop()).await, signal("SIGTERM"));
}
