//! The selection: the targets that a request names, and the destinations that get the message.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use agents::pool::PoolProcess;
use base::types::{AgentName, SessionId};
use events::api::{BroadcastForm, BroadcastReason, BroadcastTargetKind, BroadcastTo};

#[derive(Clone)]
pub(super) struct Target {
    pub(super) kind: BroadcastTargetKind,
    pub(super) name: Option<AgentName>,
    pub(super) process: Option<Uuid>,
    pub(super) session: Option<SessionId>,
}

impl Target {
    fn named(kind: BroadcastTargetKind, name: &AgentName) -> Self {
        Self {
            kind,
            name: Some(name.clone()),
            process: None,
            session: None,
        }
    }
}

/// A receiver of the message. It gets the message once, also if several targets select it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Destination {
    Process(Uuid),
    /// A member of the dialect `cca`, which has one connection for all its processes.
    Member(AgentName),
    /// A prompt in the queue of the session.
    Session(SessionId),
}

pub(super) struct Reachable {
    pub(super) processes: Vec<PoolProcess>,
    pub(super) cca_members: BTreeSet<AgentName>,
    pub(super) agents: BTreeSet<AgentName>,
    /// All members of the fleet, and whether each is connected.
    pub(super) members: BTreeMap<AgentName, bool>,
}

/// Finds the destinations of a broadcast.
pub(super) struct Selection<'a> {
    form: BroadcastForm,
    reachable: &'a Reachable,
    targets: Vec<(Target, Result<Destination, BroadcastReason>)>,
}

impl<'a> Selection<'a> {
    /// The targets of a broadcast, each with its destination.
    pub(super) fn targets(
        to: &BroadcastTo,
        form: BroadcastForm,
        reachable: &'a Reachable,
    ) -> Vec<(Target, Result<Destination, BroadcastReason>)> {
        let mut selection = Self {
            form,
            reachable,
            targets: Vec::new(),
        };
        match to {
            BroadcastTo::All(_) => selection.select_all(),
            BroadcastTo::Selected(selected) => {
                for name in selected.agents.iter().collect::<BTreeSet<_>>() {
                    let known = reachable.agents.contains(name);
                    selection.select_agent(BroadcastTargetKind::Agent, name, known);
                }
                for session in selected.sessions.iter().collect::<BTreeSet<_>>() {
                    selection.select_session(*session);
                }
                for name in selected.members.iter().collect::<BTreeSet<_>>() {
                    let known = reachable.members.contains_key(name);
                    selection.select_agent(BroadcastTargetKind::Member, name, known);
                }
            }
        }
        selection.targets
    }

    fn select_all(&mut self) {
        for process in &self.reachable.processes {
            let name = &process.spec.name;
            match (self.form, process.holder) {
                (BroadcastForm::Prompt, Some(holder)) => self.select_session(holder.session),
                (BroadcastForm::Prompt, None) => {}
                (BroadcastForm::Notification, _) if self.reachable.cca_members.contains(name) => {}
                (BroadcastForm::Notification, _) => {
                    self.add_process(BroadcastTargetKind::Agent, process);
                }
            }
        }
        if self.form == BroadcastForm::Notification {
            for name in &self.reachable.cca_members {
                let target = Target::named(BroadcastTargetKind::Member, name);
                self.add(target, Ok(Destination::Member(name.clone())));
            }
        }
    }

    fn select_agent(&mut self, kind: BroadcastTargetKind, name: &AgentName, known: bool) {
        let target = Target::named(kind, name);
        if !known {
            return self.add(target, Err(BroadcastReason::Unknown));
        }
        if self.form == BroadcastForm::Notification && self.reachable.cca_members.contains(name) {
            return self.add(target, Ok(Destination::Member(name.clone())));
        }
        let first = self.targets.len();
        let processes = self.reachable.processes.iter();
        for process in processes.filter(|process| process.spec.name == *name) {
            match (self.form, process.holder) {
                (BroadcastForm::Notification, _) => self.add_process(kind, process),
                (BroadcastForm::Prompt, Some(holder)) => {
                    let target = Target {
                        session: Some(holder.session),
                        ..target.clone()
                    };
                    self.add(target, Ok(Destination::Session(holder.session)));
                }
                (BroadcastForm::Prompt, None) => {}
            }
        }
        if self.targets.len() == first {
            let reason = match self.form {
                _ if self.reachable.members.get(name) == Some(&false) => {
                    BroadcastReason::Disconnected
                }
                BroadcastForm::Notification => BroadcastReason::NoProcess,
                BroadcastForm::Prompt => BroadcastReason::NoSession,
            };
            self.add(target, Err(reason));
        }
    }

    fn select_session(&mut self, session: SessionId) {
        let mut target = Target {
            kind: BroadcastTargetKind::Session,
            name: None,
            process: None,
            session: Some(session),
        };
        if self.form == BroadcastForm::Prompt {
            return self.add(target, Ok(Destination::Session(session)));
        }
        let mut processes = self.reachable.processes.iter();
        let holding = processes.find(|process| {
            let holder = process.holder.as_ref();
            holder.is_some_and(|holder| holder.session == session)
        });
        target.process = holding.map(|process| process.id);
        let destination = holding.map(|process| self.destination(process));
        self.add(target, destination.ok_or(BroadcastReason::NoProcess));
    }

    fn add_process(&mut self, kind: BroadcastTargetKind, process: &PoolProcess) {
        let target = Target {
            process: Some(process.id),
            session: process.holder.map(|holder| holder.session),
            ..Target::named(kind, &process.spec.name)
        };
        self.add(target, Ok(self.destination(process)));
    }

    fn add(&mut self, target: Target, destination: Result<Destination, BroadcastReason>) {
        self.targets.push((target, destination));
    }

    /// The destination of a notification for a process. A member of the dialect `cca` has no processes of its own.
    fn destination(&self, process: &PoolProcess) -> Destination {
        let name = &process.spec.name;
        if self.reachable.cca_members.contains(name) {
            Destination::Member(name.clone())
        } else {
            Destination::Process(process.id)
        }
    }
}
