//! The connections of hundreds of clients break at the same time, repeatedly, and all clients reconnect at once.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{ALONE, LIMITS, task};
use crate::support::lean::Kept;
use crate::support::proxy::Proxy;
use crate::support::{History, Setup, figure};

const CLIENTS: usize = 500;
const CUTS: u32 = 5;
/// The maximum duration of another session's turn, on a busy machine without optimisations.
const TURN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_clients_reconnect_repeatedly_without_loss() {
    let _alone = ALONE.lock().await;
    let many = "limits.per_key.max_streams = 3000\nserver.max_connections_per_address = 4000\n";
    let gateway = Setup::fake(&[])
        .settings(&format!("{LIMITS}{many}"))
        .start();
    let session = gateway.session("fake").await;
    let other = gateway.session("fake").await;
    let proxy = Proxy::start(gateway.address()).await;
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let mut client = Kept::new(&gateway, &session);
        let to = proxy.address;
        clients.spawn(async move {
            client.follow(to, "prompt.completed").await;
            client
        });
    }
    gateway.prompt(&session, "flood n=200 rate=20").await;
    let clients = task(clients.join_all());
    let mut turns = Vec::new();
    for _ in 0..CUTS {
        let cut = Instant::now();
        proxy.cut();
        while cut.elapsed() < Duration::from_millis(1500) {
            let began = Instant::now();
            assert_eq!(
                gateway.turn(&other, "echo still here").await["status"],
                "completed"
            );
            turns.push(began.elapsed());
        }
    }
    let clients = clients.await.expect("no client found an error");
    let connections = clients.iter().map(Kept::connections).sum::<usize>();
    turns.sort();
    let median = turns[turns.len() / 2];
    let worst = turns[turns.len() - 1];
    figure(&format!(
        "{CLIENTS} clients, {CUTS} cuts, {connections} connections; {} turns elsewhere took {median:?}, {worst:?} at most",
        turns.len()
    ));
    assert!(connections > 2 * CLIENTS, "they came back");
    History::kept(&gateway, &session, clients)
        .await
        .assert_holds();
    assert!(worst < TURN, "another session waited for {worst:?}");
}
