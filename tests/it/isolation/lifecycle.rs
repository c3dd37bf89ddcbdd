//! The end of isolated agents: exit codes, survivors, the port of the gateway, and temporary folders.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::ground::{
    Machine, Opened, User, agents, at_home_of_agents, open, order, port, setup, start,
    supervisor_of,
};
use crate::support::gateway::{KEY, command};
use crate::support::wait::LONGEST;
use crate::support::{Gateway, eventually, is_alive};

const MACHINES: [Machine; 2] = [Machine::Namespaces, Machine::LandlockOnly];

/// A gateway whose agent has left a daemon that binds the gateway's port in a loop.
async fn with_daemon(machine: Machine) -> (Gateway, Opened, PathBuf) {
    let user = User::all()[0];
    let gateway = start(setup(user, machine, "private", ""), user);
    let session = open(&gateway, &json!({ "agent": "hostile" })).await;
    let file = session.cwd.join("daemon");
    let targets = json!({ "port": port(&gateway), "daemonFile": file });
    let daemon = json!({ "act": "daemon", "targets": targets, "cwd": session.cwd });
    let turn = gateway.turn(&session.id, &daemon.to_string()).await;
    assert_eq!(turn["stopReason"], "end_turn", "{turn}");
    assert!(at_home_of_agents(&gateway).len() > 1, "the daemon runs");
    (gateway, session, file)
}

async fn no_survivors(gateway: &Gateway) {
    eventually(
        "the end of all processes of the agent",
        Duration::from_secs(10),
        || async { at_home_of_agents(gateway).is_empty().then_some(()) },
    )
    .await;
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).expect("a pid"), signal).expect("it runs");
}

#[tokio::test]
async fn daemon_does_not_survive_a_killed_supervisor() {
    let (gateway, ..) = with_daemon(Machine::Namespaces).await;
    let agents = agents(&gateway, "hostile");
    signal(
        supervisor_of(&gateway, *agents.first().expect("the agent runs")),
        Signal::KILL,
    );
    no_survivors(&gateway).await;
}

#[tokio::test]
async fn daemon_does_not_survive_the_end_of_its_session() {
    for machine in MACHINES {
        let (gateway, session, _) = with_daemon(machine).await;
        gateway
            .post(&format!("/v1/sessions/{}/close", session.id), &json!({}))
            .await;
        no_survivors(&gateway).await;
    }
}

#[tokio::test]
async fn port_of_a_killed_gateway_serves_no_client() {
    for machine in MACHINES {
        for _ in 0..3 {
            let (mut gateway, _, file) = with_daemon(machine).await;
            let port = port(&gateway);
            for address in ["127.0.0.1", "[::1]"] {
                let answer = reqwest::get(format!("http://{address}:{port}/livez"))
                    .await
                    .expect("the gateway");
                assert_eq!(answer.status(), 200, "{address}");
            }
            gateway.kill();
            let until = Instant::now() + Duration::from_secs(2);
            while Instant::now() < until {
                for address in ["127.0.0.1", "::1"] {
                    if let Ok(mut connection) = TcpStream::connect((address, port)) {
                        let request =
                            format!("GET /v1 HTTP/1.1\r\nAuthorization: Bearer {KEY}\r\n\r\n");
                        drop(connection.write_all(request.as_bytes()));
                    }
                }
            }
            no_survivors(&gateway).await;
            let received = std::fs::read_to_string(file).expect("the daemon wrote it");
            assert_eq!(
                received, "runs",
                "with {machine:?} the daemon received a request"
            );
        }
    }
}

/// At these levels, an agent has the right to suspend its supervisor.
#[tokio::test]
async fn suspended_supervisor_does_not_survive_a_killed_gateway() {
    let user = User::all()[0];
    for (level, machine) in [("off", Machine::Any), ("private", Machine::Namespaces)] {
        let mut gateway = start(setup(user, machine, level, ""), user);
        open(&gateway, &json!({ "agent": "hostile" })).await;
        let agents = agents(&gateway, "hostile");
        let supervisor = supervisor_of(&gateway, *agents.first().expect("the agent runs"));
        signal(supervisor, Signal::STOP);
        gateway.kill();
        eventually("the end of the supervisor", LONGEST, || async {
            (!is_alive(supervisor)).then_some(())
        })
        .await;
        assert_eq!(at_home_of_agents(&gateway), [0; 0], "{level}");
    }
}

/// Holds the lock and the port of a supervisor whose gateway was killed before it wrote the run file.
const SUPERVISOR: &str = "
import fcntl, socket, sys
lock = open(sys.argv[1], 'r+')
fcntl.flock(lock, fcntl.LOCK_EX)
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(('127.0.0.1', int(sys.argv[2])))
listener.listen()
print('holds', flush=True)
sys.stdin.read()
";

#[tokio::test]
async fn start_waits_for_the_port_that_a_supervisor_without_run_file_holds() {
    const DELAY: Duration = Duration::from_millis(500);
    let user = User::all()[0];
    let mut gateway = start(setup(user, Machine::Any, "private", ""), user);
    let port = port(&gateway);
    gateway.kill();
    let mut supervisor = command("python3")
        .args(["-c", SUPERVISOR])
        .arg(gateway.path("data/private/supervisors"))
        .arg(port.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python is installed");
    let mut line = String::new();
    let mut output = BufReader::new(supervisor.stdout.take().expect("a pipe"));
    output.read_line(&mut line).expect("its line");
    assert_eq!(line, "holds\n");
    gateway.begin();
    tokio::time::sleep(DELAY).await;
    assert!(gateway.runs(), "{}", gateway.log());
    drop(supervisor.stdin.take());
    supervisor.wait().expect("it is our child");
    let url = format!("http://127.0.0.1:{port}/livez");
    eventually("the start of the gateway", LONGEST, || async {
        reqwest::get(&url)
            .await
            .ok()
            .filter(|answer| answer.status() == 200)
    })
    .await;
}

/// The problem of a turn whose agent ended.
async fn ended(machine: Machine, level: &str, order: &Value) -> Value {
    let user = User::all()[0];
    let gateway = start(setup(user, machine, level, ""), user);
    let session = open(&gateway, &json!({ "agent": "hostile" })).await;
    let turn = gateway.turn(&session.id, &order.to_string()).await;
    turn["error"].clone()
}

#[tokio::test]
async fn exit_of_an_isolated_agent_is_reported_as_without_isolation() {
    let exit = json!({ "act": "exit", "code": 7 });
    let signal = json!({ "act": "signal", "number": 11 });
    for (level, machine) in [
        ("off", Machine::Any),
        ("private", Machine::Namespaces),
        ("private", Machine::LandlockOnly),
    ] {
        let error = ended(machine, level, &exit).await;
        assert_eq!(
            (&error["exitCode"], &error["signal"]),
            (&json!(7), &Value::Null),
            "{level} {error}"
        );
        let error = ended(machine, level, &signal).await;
        assert_eq!(
            (&error["exitCode"], &error["signal"]),
            (&Value::Null, &json!("SIGSEGV")),
            "{level} {error}"
        );
    }
}

#[tokio::test]
async fn temporary_folder_is_removed_with_its_process() {
    for machine in MACHINES {
        for user in User::all() {
            let gateway = start(setup(user, machine, "private", ""), user);
            let session = open(&gateway, &json!({ "agent": "hostile" })).await;
            let files =
                "d=${TMPDIR:-/tmp}; mkdir -p $d/a/b && echo x >$d/a/b/c && chmod 0 $d/a/b $d/a";
            let run = json!({ "act": "run", "command": ["sh", "-c", files] });
            let ran = order(&gateway, &session, &run, "ran.json").await;
            assert_eq!(ran[0], 0, "{ran}");
            let temporary = gateway.path("data").join("tmp");
            assert_eq!(entries(&temporary), 1);
            gateway
                .post(&format!("/v1/sessions/{}/close", session.id), &json!({}))
                .await;
            eventually("the end of the folder", LONGEST, || async {
                (entries(&temporary) == 0).then_some(())
            })
            .await;
        }
    }
}

fn entries(folder: &Path) -> usize {
    folder.read_dir().into_iter().flatten().count()
}
