//! The cost of floods and slow clients for the gateway, and for another client at the same address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::ALONE;
use crate::floods::clients::ask;
use crate::floods::frames::{
    DATA, END_HEADERS, END_STREAM, FLOODS, Flood, HEADERS, ends, frame, get, open, post, stream,
};
use crate::support::gateway::{KEY, is_other_binary};
use crate::support::wait::LONGEST;
use crate::support::{Gateway, Setup, figure, procfs};

const SLOW: usize = 1000;
const REQUESTS: usize = 200;
/// The number of measurements. Other programs on the machine can only make a measurement worse.
const ROUNDS: usize = 6;
const MOST_MEMORY_KIB: u64 = 64 << 10;
/// The priority of clients that attack without end. They are on another machine in reality, so they use only processor
/// time that the gateway and its neighbour leave.
const LOWEST: i32 = 19;
/// The priority of clients that attack once, so that they attack at the same moment.
const USUAL: i32 = 0;

/// The limit of the p99. A debug build needs about ten times as long for a connection, so that floods use both processors.
fn longest_p99() -> Duration {
    Duration::from_millis(if cfg!(debug_assertions) && !is_other_binary() {
        500
    } else {
        100
    })
}

/// Starts clients in tasks, and counts their connections.
type Clients = Box<dyn FnOnce(&mut JoinSet<()>, SocketAddr, &Arc<AtomicU64>) + Send>;

/// The clients that attack, on threads of their own.
struct Attack {
    stop: Arc<AtomicBool>,
    connections: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Attack {
    #[expect(
        clippy::disallowed_methods,
        reason = "the test's own threads, which end with the attack"
    )]
    fn start(host: SocketAddr, priority: i32, clients: impl IntoIterator<Item = Clients>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(AtomicU64::new(0));
        let threads = clients.into_iter().map(|clients| {
            let stop = Arc::clone(&stop);
            let connections = Arc::clone(&connections);
            std::thread::spawn(move || {
                // On Linux, this is the priority of one thread.
                rustix::process::setpriority_process(Some(rustix::thread::gettid()), priority)
                    .expect("a thread may lower its priority");
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                runtime.expect("a runtime").block_on(async {
                    let mut tasks = JoinSet::new();
                    clients(&mut tasks, host, &connections);
                    while !stop.load(Ordering::Relaxed) {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                });
            })
        });
        let threads = threads.collect();
        Self {
            stop,
            connections,
            threads,
        }
    }

    /// Waits until every client has connected once. The first ones were evicted.
    async fn connected(&self) {
        while self.connections.load(Ordering::Relaxed) < SLOW as u64 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a client does not panic");
        }
        self.connections.load(Ordering::Relaxed)
    }
}

/// Clients that connect again a second after their connection ends.
fn slow_clients(tasks: &mut JoinSet<()>, host: SocketAddr, connections: &Arc<AtomicU64>) {
    for number in 0..SLOW {
        let connections = Arc::clone(connections);
        tasks.spawn(async move {
            let start = match number % 5 {
                0 => String::new(),
                1 => "GET /livez HTTP/1.1\r\nhost: ".to_owned(),
                2 => format!(
                    "GET /v1 HTTP/1.1\r\nhost: {host}\r\nx-large: {}",
                    "x".repeat(48 << 10)
                ),
                3 => format!(
                    "POST /v1/sessions HTTP/1.1\r\nhost: {host}\r\ncontent-length: 1000\r\n\r\n["
                ),
                _ => format!("GET /livez HTTP/1.1\r\nhost: {host}\r\n\r\n"),
            };
            loop {
                if let Ok(mut socket) = TcpStream::connect(host).await {
                    connections.fetch_add(1, Ordering::Relaxed);
                    drop(socket.write_all(start.as_bytes()).await);
                    ends(&mut socket, Duration::from_mins(1)).await;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
    }
}

/// A known flood, again and again.
fn flood(name: &'static str) -> Clients {
    Box::new(move |tasks, host, connections| {
        let connections = Arc::clone(connections);
        tasks.spawn(async move {
            let flood = Flood::named(name, host);
            loop {
                connections.fetch_add(1, Ordering::Relaxed);
                drop(
                    flood
                        .run(host, u32::MAX - 100, Duration::from_secs(30))
                        .await,
                );
                tokio::task::yield_now().await;
            }
        });
    })
}

/// All known floods at once, on one thread.
fn floods(tasks: &mut JoinSet<()>, host: SocketAddr, connections: &Arc<AtomicU64>) {
    for name in FLOODS {
        flood(name)(tasks, host, connections);
    }
}

/// The time from the connect to the response of a client with a key. It tries again if its connection ends.
async fn served(host: SocketAddr, retries: &mut usize) -> Duration {
    let began = Instant::now();
    loop {
        let answer = async { ask(&mut TcpStream::connect(host).await?, "/v1", Some(KEY)).await };
        match tokio::time::timeout(LONGEST, answer)
            .await
            .expect("an answer in time")
        {
            Ok(status) => {
                assert_eq!(status, 200);
                return began.elapsed();
            }
            Err(_) => *retries += 1,
        }
    }
}

/// The p99 of a client of the same address with a new connection for each request.
async fn measure(gateway: &Gateway, requests: usize) -> Duration {
    let mut times = Vec::new();
    let mut retries = 0;
    for _ in 0..requests {
        times.push(served(gateway.address(), &mut retries).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    times.sort();
    let median = times[requests / 2];
    let p99 = times[requests * 99 / 100];
    figure(&format!(
        "{requests} requests: median {median:?}, p99 {p99:?}, {retries} retries"
    ));
    p99
}

/// A gateway with the default limits, and its memory when it is idle.
struct Attacked {
    gateway: Gateway,
    idle: u64,
}

impl Attacked {
    async fn start() -> Self {
        let gateway = Setup::fake(&[]).start();
        // The first requests load the memory of an idle gateway.
        measure(&gateway, 100).await;
        let idle = procfs::resident(gateway.pid());
        Self { gateway, idle }
    }

    fn host(&self) -> SocketAddr {
        self.gateway.address()
    }

    /// Checks the p99 while an attack lasts, and the highest memory since the start.
    async fn withstands(&self, attack: &str) {
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            best = best.min(measure(&self.gateway, REQUESTS).await);
            if best <= longest_p99() {
                break;
            }
        }
        let grown = procfs::highest(self.gateway.pid()) - self.idle;
        figure(&format!(
            "{attack}: {grown} KiB over {} KiB when idle, p99 {best:?}",
            self.idle
        ));
        assert!(
            grown < MOST_MEMORY_KIB,
            "{attack}: {grown} KiB over {} KiB",
            self.idle
        );
        assert!(best <= longest_p99(), "{attack}: {best:?}");
    }
}

/// Requests that wait for a window, and more requests with large headers and bodies.
fn hoard(host: SocketAddr) -> Vec<u8> {
    let page = get("/", host);
    let rejected = post("/v1/sessions", host);
    let mut bytes = Vec::new();
    for number in 0..16 {
        bytes.extend(frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            stream(number),
            &page,
        ));
    }
    for number in 16..120 {
        // A literal field with the new name `x` and 14,000 bytes.
        let large = [
            &rejected[..],
            &[0, 1, b'x', 0x7f, 0xb1, 0x6c],
            &[b'y'; 14_000],
        ]
        .concat();
        bytes.extend(frame(HEADERS, END_HEADERS, stream(number), &large));
    }
    for number in 16..120 {
        bytes.extend(frame(DATA, 0, stream(number), &[b' '; 8 << 10]));
    }
    bytes
}

/// Clients that connect once, and read nothing of their responses.
fn hoarders(tasks: &mut JoinSet<()>, host: SocketAddr, connections: &Arc<AtomicU64>) {
    let bytes: Arc<[u8]> = hoard(host).into();
    for _ in 0..SLOW {
        let connections = Arc::clone(connections);
        let bytes = Arc::clone(&bytes);
        tasks.spawn(async move {
            connections.fetch_add(1, Ordering::Relaxed);
            // The windows of its streams are closed.
            let Ok(mut socket) = open(host, &[0, 4, 0, 0, 0, 0]).await else {
                return;
            };
            drop(socket.write_all(&bytes).await);
            ends(&mut socket, Duration::from_mins(1)).await;
        });
    }
}

#[tokio::test]
async fn unread_requests_of_unauthenticated_http_2_clients_use_little_memory_and_do_not_delay_a_neighbour()
 {
    let _alone = ALONE.lock().await;
    let attacked = Attacked::start().await;
    let attack = Attack::start(attacked.host(), USUAL, [Box::new(hoarders) as Clients]);
    attack.connected().await;
    attacked.withstands("unread requests").await;
    figure(&format!(
        "{} connections with unread responses",
        attack.stop()
    ));
}

#[tokio::test]
async fn slow_clients_and_each_flood_use_little_memory_and_do_not_delay_a_neighbour() {
    let _alone = ALONE.lock().await;
    let attacked = Attacked::start().await;
    let slow = Attack::start(attacked.host(), LOWEST, [Box::new(slow_clients) as Clients]);
    slow.connected().await;
    attacked.withstands("slow clients").await;
    for name in FLOODS {
        let attack = Attack::start(attacked.host(), LOWEST, [flood(name)]);
        attacked
            .withstands(&format!("slow clients and {name}"))
            .await;
        figure(&format!("{name}: {} connections", attack.stop()));
    }
    figure(&format!("{} slow connections", slow.stop()));
}

#[tokio::test]
async fn floods_and_slow_clients_use_little_memory_and_do_not_delay_a_neighbour() {
    let _alone = ALONE.lock().await;
    let attacked = Attacked::start().await;
    let clients = [
        Box::new(slow_clients) as Clients,
        Box::new(floods) as Clients,
    ];
    let attack = Attack::start(attacked.host(), LOWEST, clients);
    attack.connected().await;
    attacked.withstands("slow clients and all floods").await;
    figure(&format!("{} hostile connections", attack.stop()));
}
