//! Terminals of a child, under its supervisor.

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use children::{Child, Exit, Limits, SpawnError, TerminalChild, TerminalOutput, TerminalSpec};
use rustix::process::{Signal, kill_process};

use super::{Bench, alive, code, line_of, pid, signal, soon, until};

/// Leaves a process in its own session whose parents have ended and that ignores TERM.
const RUNAWAY: &str = r#"
    (setsid sh -c 'trap "" TERM HUP INT; echo $$ >runaway; while :; do sleep 1; done' >/dev/null 2>&1 &)
    "#;

fn spec(bench: &Bench, script: &str) -> TerminalSpec {
    TerminalSpec {
        command: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env: Vec::new(),
        cwd: bench.dir.path().to_owned(),
    }
}

async fn start(bench: &Bench, agent: &Child, script: &str) -> (TerminalChild, TerminalOutput) {
    soon(agent.terminals.spawn(spec(bench, script)))
        .await
        .expect("the terminal starts")
}

async fn rest(output: &mut TerminalOutput) -> String {
    let mut bytes = Vec::new();
    while let Some(more) = soon(output.read()).await {
        bytes.extend(more);
    }
    String::from_utf8(bytes).expect("text")
}

async fn run(bench: &Bench, agent: &Child, spec: TerminalSpec) -> (String, Exit) {
    let started = soon(agent.terminals.spawn(spec)).await;
    let (terminal, mut output) =
        started.unwrap_or_else(|error| panic!("{}: {error}", bench.dir.path().display()));
    let shown = rest(&mut output).await;
    (shown, soon(terminal.exited()).await)
}

#[tokio::test]
async fn exit_codes_signals_and_both_outputs_are_returned() {
    let bench = Bench::with(Limits::default());
    let agent = bench.start("cat").await;
    for number in [0, 3, 255] {
        let script = format!("echo out; echo err >&2; echo end; exit {number}");
        let (shown, exit) = run(&bench, &agent, spec(&bench, &script)).await;
        assert_eq!((shown.as_str(), exit), ("out\nerr\nend\n", code(number)));
    }
    let (_, exit) = run(&bench, &agent, spec(&bench, "kill -SEGV $$")).await;
    assert_eq!(exit, signal("SIGSEGV"));
    assert_eq!(agent.exit(), None, "the agent is not concerned");
    assert_eq!(soon(agent.stop()).await, code(0));
}

#[tokio::test]
async fn terminal_runs_with_the_agents_user_and_the_requested_environment() {
    let bench = Bench::new();
    let mut agent_spec = bench.shell("cat");
    agent_spec.env.extend([
        ("AGENT".into(), "its own".into()),
        ("BOTH".into(), "agent".into()),
    ]);
    let agent = bench.spawner.spawn(agent_spec).await.unwrap();
    let folder = bench.path("a folder");
    fs::create_dir(&folder).unwrap();
    let script = "pwd; umask; ulimit -c; grep NoNewPrivs /proc/self/status; echo $AGENT $BOTH $ADDED; \
                  wc -c; for fd in /proc/$$/fd/*; do [ -e $fd ] && echo ${fd##*/}; done; cat /proc/$$/stat";
    let mut spec = spec(&bench, script);
    spec.cwd.clone_from(&folder);
    spec.env = vec![
        ("ADDED".into(), "two words".into()),
        ("BOTH".into(), "terminal".into()),
    ];
    let (shown, _) = run(&bench, &agent, spec).await;
    let lines: Vec<&str> = shown.lines().collect();
    let confined = [
        folder.to_str().unwrap(),
        "0077",
        "0",
        "NoNewPrivs:\t1",
        "its own terminal two words",
        "0",
    ];
    assert_eq!(lines[..6], confined, "{shown}");
    assert_eq!(lines[6..9], ["0", "1", "2"], "{shown}");
    let (program, fields) = lines[9].split_once(' ').unwrap();
    let fields: Vec<&str> = fields
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let [_, supervisor, group, session, tty, ..] = fields[..] else {
        panic!("{shown}")
    };
    assert_eq!(
        (group, session, tty),
        (program, supervisor, "0"),
        "a group below a supervisor, without a terminal of the machine"
    );
    soon(agent.stop()).await;
}

#[tokio::test]
async fn arguments_pass_unchanged_and_are_hidden_from_the_supervisor() {
    let bench = Bench::new();
    let agent = bench.start("cat").await;
    let args = ["--", "-h", "", "two words", "$HOME", "`id`", "é"];
    let mut spec = spec(&bench, "");
    spec.command = "printf".into();
    spec.args = std::iter::once("<%s>")
        .chain(args)
        .map(str::to_owned)
        .collect();
    let (shown, exit) = run(&bench, &agent, spec).await;
    let expected = format!("<{}>", args.join("><"));
    assert_eq!((shown, exit), (expected, code(0)));
    soon(agent.stop()).await;
}

#[tokio::test]
async fn failed_start_has_a_reason_and_no_effect() {
    let bench = Bench::new();
    let agent = bench.start("cat").await;
    let mut wrong = spec(&bench, "");
    wrong.command = "no-such-program".into();
    let error = soon(agent.terminals.spawn(wrong.clone()))
        .await
        .unwrap_err();
    let SpawnError::Program { source, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(source.kind(), io::ErrorKind::NotFound);
    wrong.command = "sh".into();
    wrong.cwd = bench.path("missing");
    let error = soon(agent.terminals.spawn(wrong.clone()))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, SpawnError::Directory { folder, .. } if *folder == wrong.cwd),
        "{error:?}"
    );
    wrong.cwd = bench.dir.path().to_owned();
    wrong.args = vec!["x".repeat(3 << 20)];
    let error = soon(agent.terminals.spawn(wrong)).await.unwrap_err();
    assert!(matches!(&error, SpawnError::Setup(_)), "{error:?}");
    let supervisor = bench.supervisor().as_raw_pid();
    let children =
        || fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
    until("only the agent is left", || {
        children().split_whitespace().count() == 1
    })
    .await;
    soon(agent.stop()).await;
}

#[tokio::test]
async fn kill_ends_all_processes_of_a_terminal_and_the_agent_continues() {
    let bench = Bench::new();
    let agent = bench.start("cat").await;
    let (terminal, mut output) = start(
        &bench,
        &agent,
        &format!("{RUNAWAY} echo up; trap '' TERM; while :; do sleep 0.05; done"),
    )
    .await;
    let runaway = pid(&line_of(&bench.path("runaway")).await);
    assert_eq!(soon(output.read()).await.as_deref(), Some(&b"up\n"[..]));
    let end = terminal.exited();
    terminal.kill();
    assert_eq!(soon(end).await, signal("SIGKILL"));
    until("the runaway's end", || !alive(runaway)).await;
    assert_eq!(agent.exit(), None);
    soon(agent.stop()).await;
}

#[tokio::test]
async fn background_process_lives_until_its_terminal_is_closed() {
    let bench = Bench::new();
    let agent = bench.start("cat").await;
    let script = format!("{RUNAWAY} while ! [ -s runaway ]; do sleep 0.02; done; exit 4");
    let (terminal, mut output) = start(&bench, &agent, &script).await;
    assert_eq!(soon(terminal.exited()).await, code(4));
    let runaway = pid(&line_of(&bench.path("runaway")).await);
    assert_eq!(rest(&mut output).await, "");
    assert!(alive(runaway));
    drop(terminal);
    until("the runaway's end", || !alive(runaway)).await;
    soon(agent.stop()).await;
}

#[tokio::test]
async fn the_agent_s_end_is_the_terminals_end() {
    let bench = Bench::new();
    for way in [
        "stops",
        "dies",
        "loses its supervisor",
        "loses the supervisor of its terminal",
    ] {
        let agent = bench.start("cat").await;
        let (terminal, _output) = start(
            &bench,
            &agent,
            &format!("{RUNAWAY} echo $$ >program; trap '' TERM; while :; do sleep 0.05; done"),
        )
        .await;
        let pids = [
            pid(&line_of(&bench.path("runaway")).await),
            pid(&line_of(&bench.path("program")).await),
        ];
        let end = terminal.exited();
        match way {
            "stops" => drop(soon(agent.stop()).await),
            "dies" => kill_process(pid(&agent.pid.to_string()), Signal::KILL).unwrap(),
            "loses its supervisor" => kill_process(bench.supervisor(), Signal::KILL).unwrap(),
            _ => {
                let supervisor = bench.supervisor().as_raw_pid();
                let children =
                    fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"))
                        .unwrap();
                let program = agent.pid.to_string();
                let other = children
                    .split_whitespace()
                    .find(|child| **child != program)
                    .unwrap();
                kill_process(pid(other), Signal::KILL).unwrap();
                assert_eq!(soon(end).await.code, None, "its exit status is unknown");
                soon(agent.stop()).await;
                until(way, || !pids.iter().any(|pid| alive(*pid))).await;
                return;
            }
        }
        soon(end).await;
        until(way, || !pids.iter().any(|pid| alive(*pid))).await;
        soon(agent.exited()).await;
        let late = soon(agent.terminals.spawn(spec(&bench, "exit"))).await;
        assert!(late.is_err(), "{way}: nothing starts without the agent");
        for file in ["runaway", "program"] {
            fs::remove_file(bench.path(file)).unwrap();
        }
    }
}

#[tokio::test]
async fn secrets_of_the_agent_do_not_show() {
    let bench = Bench::new();
    let mut agent_spec = bench.shell("cat");
    agent_spec.env.push(("KEY".into(), "s3cr3t-value".into()));
    agent_spec.secrets = vec!["s3cr3t-value".to_owned()];
    let agent = bench.spawner.spawn(agent_spec).await.unwrap();
    let script = "echo $KEY; printf 'cut s3cr'; sleep 0.1; echo 3t-value; printf s3c";
    let (shown, _) = run(&bench, &agent, spec(&bench, script)).await;
    assert_eq!(shown, "[secret]\ncut [secret]\ns3c");
    soon(agent.stop()).await;
}

#[tokio::test]
async fn unread_output_blocks_only_its_command() {
    let bench = Bench::new();
    let agent = bench.start("cat").await;
    let (loud, output) = start(&bench, &agent, "yes").await;
    let (shown, exit) = run(&bench, &agent, spec(&bench, "echo quick")).await;
    assert_eq!((shown.as_str(), exit), ("quick\n", code(0)));
    let end = loud.exited();
    loud.kill();
    assert_eq!(soon(end).await, signal("SIGKILL"));
    drop(output);
    soon(agent.stop()).await;
}

#[tokio::test]
async fn output_before_the_exit_is_complete_at_the_exit() {
    let bench = Bench::new();
    let agent = bench.start("cat").await;
    let (terminal, mut output) = start(&bench, &agent, "sleep 60 & echo last words; exit 2").await;
    assert_eq!(soon(terminal.exited()).await, code(2));
    assert_eq!(output.read_now().as_deref(), Some(&b"last words\n"[..]));
    assert_eq!(
        output.read_now().as_deref(),
        Some(&b""[..]),
        "its descendant still holds the pipe"
    );
    drop(terminal);
    assert_eq!(rest(&mut output).await, "");
    assert_eq!(output.read_now(), None);
    soon(agent.stop()).await;
}

/// Not a test: the gateway's part of the next test, run in a second process of this binary. It reads the folder from
/// stdin, and returns if stdin is empty.
#[tokio::test]
#[ignore = "a part of the next test, which starts it"]
async fn gateway_with_a_terminal() {
    let mut folder = String::new();
    io::stdin().lock().read_line(&mut folder).unwrap();
    let folder = Path::new(folder.trim_end());
    if !folder.is_absolute() {
        return;
    }
    let bench = Bench::within(folder, Limits::default());
    let agent = bench
        .start("trap '' TERM; while :; do sleep 0.05; done")
        .await;
    let mut terminal = spec(
        &bench,
        &format!("{RUNAWAY} trap '' TERM; echo $$ >program; while :; do sleep 0.05; done"),
    );
    terminal.cwd = folder.to_owned();
    let held = agent.terminals.spawn(terminal).await.unwrap();
    fs::write(folder.join("agent"), format!("{}\n", agent.pid)).unwrap();
    agent.exited().await;
    drop(held);
}

#[tokio::test]
async fn no_terminal_survives_a_kill_of_the_gateway() {
    let dir = tempfile::tempdir().unwrap();
    #[expect(
        clippy::disallowed_methods,
        reason = "this process plays the gateway's parent"
    )]
    let mut gateway = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "process::terminals::gateway_with_a_terminal",
            "--ignored",
            "--nocapture",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = gateway.stdin.take().unwrap();
    writeln!(stdin, "{}", dir.path().display()).unwrap();
    let mut pids = Vec::new();
    for name in ["agent", "program", "runaway"] {
        pids.push(pid(&line_of(&dir.path().join(name)).await));
    }
    assert!(pids.iter().all(|pid| alive(*pid)));
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    until("the end of agent, program and runaway", || {
        !pids.iter().any(|pid| alive(*pid))
    })
    .await;
}

#[tokio::test]
async fn many_terminals_at_once() {
    let bench = Bench::new();
    let agent = bench.start("cat").await;
    let mut running = Vec::new();
    for number in 0..20 {
        running.push(
            start(
                &bench,
                &agent,
                &format!("sleep 0.1; echo {number}; exit {number}"),
            )
            .await,
        );
    }
    for (number, (terminal, mut output)) in running.into_iter().enumerate() {
        assert_eq!(rest(&mut output).await, format!("{number}\n"));
        assert_eq!(
            soon(terminal.exited()).await.code,
            i32::try_from(number).ok()
        );
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(agent.exit(), None);
    soon(agent.stop()).await;
}
