//! Limits of open descriptors: the gateway raises its limit, and its children get the original limit.

use crate::support::{Gateway, Setup};

/// The soft and hard limit of open files, as reported by the kernel.
fn limits(pid: &str) -> (String, String) {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("it runs");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("the kernel has that line");
    let mut words = line["Max open files".len()..]
        .split_whitespace()
        .map(str::to_owned);
    (
        words.next().expect("the soft one"),
        words.next().expect("the hard one"),
    )
}

/// One that a shell starts with this `ulimit`.
fn under(ulimit: &str, setup: Setup) -> Gateway {
    setup
        .run_by(&["sh", "-c", &format!("{ulimit}; exec \"$@\""), "sh"])
        .start()
}

async fn pid(gateway: &Gateway) -> String {
    let session = gateway.session("fake").await;
    let turn = gateway.turn(&session, "pid").await;
    turn["text"]
        .as_str()
        .and_then(|text| text.strip_prefix("pid="))
        .expect("its pid")
        .trim()
        .to_owned()
}

#[tokio::test]
async fn the_gateway_raises_its_limit_and_its_agents_get_the_previous_one() {
    let gateway = under("ulimit -Sn 300; ulimit -Hn 2000", Setup::fake(&[]));
    let few = "300".to_owned();
    let many = "2000".to_owned();
    assert_eq!(
        limits(&gateway.pid().to_string()),
        (many.clone(), many.clone())
    );
    assert_eq!(limits(&pid(&gateway).await), (few, many));
    let log = gateway.log();
    let warning = log
        .lines()
        .find(|line| line.contains("the hard limit of open files is too low"));
    let warning = warning.expect("4096 connections are more");
    assert!(
        warning.contains("\"limit\":2000") && warning.contains("\"connections\":4096"),
        "{warning}"
    );
}

#[tokio::test]
async fn a_limit_that_is_enough_is_not_warned_of() {
    let gateway = under(
        "ulimit -Sn 300; ulimit -Hn 2000",
        Setup::fake(&[]).settings("server.max_connections = 500"),
    );
    assert!(
        !gateway.log().contains("limit of open files"),
        "{}",
        gateway.log()
    );
}
