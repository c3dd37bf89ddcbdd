//! A gateway that is ended and started again while people work with it, and the history of that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::figures::Figures;
use super::load::{Person, Responses};
use crate::support::history::{Alive, Journals, MemoryUse, left_of, process};
use crate::support::{Follower, Gateway, History, Random, Setup, procfs};

pub(super) const SESSIONS: usize = 20;

const LIMITS: &str = "limits.per_key.max_requests_per_minute = 10000000\nlimits.per_key.max_prompts_per_minute = 10000000\nlimits.per_key.max_live_sessions = 200\n\
                      limits.per_key.max_streams = 300\nserver.max_connections_per_address = 2000\ntimeouts.drain_timeout = \"300ms\"\n";

/// How a life of the gateway ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Kill,
    /// Killed, and once more while it starts.
    KillTwice,
    /// It may drain first.
    Term,
}

pub(crate) struct World {
    pub(crate) gateway: Gateway,
    journals: Journals,
    _folder: TempDir,
    /// When each life began, in ticks of the machine, and when it ended.
    lives: Vec<(u64, Instant)>,
    alive: Vec<Alive>,
    memory: Vec<MemoryUse>,
}

/// Sessions that people work with, up to a place where all is checked.
pub(crate) struct Window {
    pub(crate) sessions: Vec<String>,
    followers: Vec<Follower>,
    people: JoinSet<()>,
    responses: Arc<Mutex<Responses>>,
    stop: Arc<AtomicBool>,
}

impl Window {
    /// Waits until this many events more were shown, or so long.
    pub(crate) async fn shows(&self, more: u64, limit: Duration) {
        let all = self.followers.last().expect("one follows all");
        let before = all.events();
        let began = Instant::now();
        while all.events() < before + more && began.elapsed() < limit {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl World {
    pub(crate) fn new(prepare: impl FnOnce(Setup) -> Setup) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let journals = folder.path().join("journals");
        let args = [
            "--resume-any",
            "--journal",
            journals.to_str().expect("UTF-8"),
        ];
        // Fewer processes than sessions: some prompts have started and wait for one when the gateway ends.
        let processes = SESSIONS * 3 / 4;
        let pool =
            format!("terminals = \"gateway\"\npool = {{ max_size = {processes}, min_idle = 0 }}");
        let gateway = prepare(Setup::fake_with(&args, &pool).settings(LIMITS)).start();
        let journals = Journals::new(&journals);
        Self {
            gateway,
            journals,
            _folder: folder,
            lives: Vec::new(),
            alive: Vec::new(),
            memory: Vec::new(),
        }
    }

    pub(crate) async fn open(&self, random: &mut Random, crashes: bool) -> Window {
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS {
            sessions.push(self.gateway.session("fake").await);
        }
        let mut followers: Vec<Follower> = sessions
            .iter()
            .map(|session| Follower::start(&self.gateway, session))
            .collect();
        followers.push(Follower::all(&self.gateway, &sessions));
        let responses = Arc::default();
        let stop = Arc::default();
        let mut people = JoinSet::new();
        for session in &sessions {
            let person = Person {
                http: reqwest::Client::builder()
                    .no_proxy()
                    .build()
                    .expect("a client"),
                url: self.gateway.url.clone(),
                key: self.gateway.key.clone(),
                session: session.clone(),
                responses: Arc::clone(&responses),
                stop: Arc::clone(&stop),
                crashes,
            };
            people.spawn(person.work(random.apart()));
        }
        Window {
            sessions,
            followers,
            people,
            responses,
            stop,
        }
    }

    /// Ends the gateway's life, and begins the next one.
    pub(crate) fn cycle(&mut self, how: End, random: &mut Random, figures: &mut Figures) {
        let pid = self.gateway.pid();
        let began = procfs::started(pid).expect("the gateway runs");
        let held = procfs::highest(pid);
        let by = format!("life {}", self.lives.len() + 1);
        figures.life(held, procfs::resident(pid), procfs::open_files(pid));
        self.memory.push(MemoryUse { by, kib: held });
        match how {
            End::Term => {
                let code = self.gateway.stop();
                assert_eq!(code, Some(0), "{}", self.gateway.log());
            }
            End::Kill | End::KillTwice => self.gateway.kill(),
        }
        self.lives.push((began, Instant::now()));
        if how == End::KillTwice {
            self.gateway.begin();
            let began = procfs::started(self.gateway.pid()).expect("it was started");
            std::thread::sleep(Duration::from_millis(random.below(150)));
            self.gateway.kill();
            self.lives.push((began, Instant::now()));
        }
        let starting = Instant::now();
        self.gateway.start();
        if how != End::Term {
            figures.started(starting.elapsed());
        }
        figures.left_at_start += self.look(procfs::started(self.gateway.pid()).expect("it runs"));
    }

    /// Counts the living processes that started before this moment.
    fn look(&mut self, now: u64) -> usize {
        let left = procfs::at_home(&self.gateway.path(""));
        let left: Vec<_> = left
            .into_iter()
            .filter(|(_, start, _)| *start < now)
            .collect();
        for (pid, start, what) in &left {
            let life = self
                .lives
                .partition_point(|(began, _)| began <= start)
                .max(1);
            let (_, end) = self.lives[life - 1];
            let what = what.clone();
            let owner = format!("life {life}");
            self.alive.push(Alive {
                pid: *pid,
                what,
                owner,
                after: end.elapsed(),
            });
        }
        left.len()
    }

    /// Kills an agent, if there is one.
    pub(super) fn kill_agent(&self, random: &mut Random) {
        let alive = self
            .journals
            .names()
            .into_iter()
            .filter_map(|name| process(&name));
        let alive: Vec<u32> = alive
            .filter(|(pid, start)| procfs::started(*pid) == Some(*start))
            .map(|(pid, _)| pid)
            .collect();
        if alive.is_empty() {
            return;
        }
        let pid = i32::try_from(*random.one_of(&alive))
            .ok()
            .and_then(Pid::from_raw);
        // It may have ended by itself since.
        kill_process(pid.expect("a pid"), Signal::KILL).ok();
    }

    /// Lets all clients finish, deletes the sessions, and returns their history.
    pub(crate) async fn close(&mut self, window: Window, figures: &mut Figures) -> History {
        let Window {
            sessions,
            followers,
            people,
            responses,
            stop,
        } = window;
        stop.store(true, Ordering::Relaxed);
        people.join_all().await;
        let mut history = History::of(&self.gateway, followers).await;
        for session in &sessions {
            let request = self
                .gateway
                .request(Method::DELETE, &format!("/v1/sessions/{session}"));
            let status = request.send().await.expect("an answer").status();
            assert_eq!(status, 204, "{}", self.gateway.log());
        }
        self.alive
            .extend(left_of(&self.gateway, "their sessions").await);
        history.journals = self.journals.take();
        self.journals
            .forget(|pid, start| procfs::started(pid) != Some(start));
        let responses = std::mem::take(&mut *responses.lock().expect("nobody panicked with it"));
        (history.prompts, history.answers) = (responses.prompts, responses.answers);
        history.alive = std::mem::take(&mut self.alive);
        history.memory = std::mem::take(&mut self.memory);
        history.plain_words = true;
        assert!(
            !self.gateway.log().contains("panicked"),
            "{}",
            self.gateway.log()
        );
        // It is appended to, and shall not grow for as long as one asks.
        std::fs::write(self.gateway.path("stderr"), "").expect("the folder is ours");
        figures.window(&history);
        history
    }

    /// Stops the gateway. Returns its processes that still run after that.
    pub(crate) async fn end(mut self) -> History {
        self.gateway.kill();
        self.alive
            .extend(left_of(&self.gateway, "the gateway").await);
        History {
            alive: self.alive,
            ..History::default()
        }
    }
}
