//! The order in which queued tasks start.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

use uuid::Uuid;

use base::types::{AgentName, Timestamp, UserId};
use events::api::TaskPriority;

/// The time by which a normal task precedes a low one, and a high task a normal one, in units of `task_aging_unit`
/// (one minute).
const NORMAL_LEAD: u32 = 10;
const HIGH_LEAD: u32 = 60;

pub(super) type TaskKey = (UserId, Uuid);

/// The place of a task in the queue of its agent: critical tasks first, then the time of creation, moved by the
/// priority. It never changes, so a task cannot wait for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    is_not_critical: bool,
    time: i64,
    id: Uuid,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueuedTask {
    pub(super) key: TaskKey,
    pub(super) agent: AgentName,
    pub(super) priority: TaskPriority,
    pub(super) created_at: Timestamp,
    pub(super) deadline: Option<Timestamp>,
    /// The size of the task's record.
    pub(super) bytes: usize,
}

#[derive(Default)]
pub(super) struct Queue {
    aging_unit: Duration,
    agents: BTreeMap<AgentName, BTreeMap<Place, QueuedTask>>,
    places: HashMap<TaskKey, (AgentName, Place)>,
    deadlines: BTreeSet<(Timestamp, TaskKey)>,
    /// The bytes of the queued tasks of each user, and of tasks that are being stored.
    bytes: HashMap<UserId, usize>,
    running: HashMap<AgentName, usize>,
}

impl Queue {
    pub(super) fn new(aging_unit: Duration) -> Self {
        Self {
            aging_unit,
            ..Self::default()
        }
    }

    pub(super) fn bytes_of(&self, owner: &UserId) -> usize {
        self.bytes.get(owner).copied().unwrap_or_default()
    }

    /// Counts the bytes of a task that is not queued yet.
    pub(super) fn reserve(&mut self, task: &QueuedTask) {
        *self.bytes.entry(task.key.0.clone()).or_default() += task.bytes;
    }

    pub(super) fn release(&mut self, task: &QueuedTask) {
        subtract(&mut self.bytes, &task.key.0, task.bytes);
    }

    pub(super) fn len_of(&self, user: &UserId) -> usize {
        self.places.keys().filter(|(of, _)| of == user).count()
    }

    pub(super) fn push(&mut self, task: QueuedTask) {
        self.reserve(&task);
        let place = self.place(&task);
        self.places
            .insert(task.key.clone(), (task.agent.clone(), place));
        if let Some(deadline) = task.deadline {
            self.deadlines.insert((deadline, task.key.clone()));
        }
        self.agents
            .entry(task.agent.clone())
            .or_default()
            .insert(place, task);
    }

    pub(super) fn remove(&mut self, key: &TaskKey) -> Option<QueuedTask> {
        let (agent, place) = self.places.remove(key)?;
        let queued = self.agents.get_mut(&agent)?;
        let task = queued.remove(&place)?;
        if queued.is_empty() {
            self.agents.remove(&agent);
        }
        if let Some(deadline) = task.deadline {
            self.deadlines.remove(&(deadline, key.clone()));
        }
        self.release(&task);
        Some(task)
    }

    /// Removes the next task whose agent has a free slot, and counts it as running.
    pub(super) fn start_next(&mut self, slots: impl Fn(&AgentName) -> usize) -> Option<QueuedTask> {
        let running = &self.running;
        let is_free =
            |agent: &AgentName| running.get(agent).copied().unwrap_or_default() < slots(agent);
        let (_, queued) = self.agents.iter().find(|(agent, _)| is_free(agent))?;
        let key = queued.values().next()?.key.clone();
        let task = self.remove(&key)?;
        self.started(&task.agent);
        Some(task)
    }

    pub(super) fn started(&mut self, agent: &AgentName) {
        *self.running.entry(agent.clone()).or_default() += 1;
    }

    pub(super) fn ended(&mut self, agent: &AgentName) {
        subtract(&mut self.running, agent, 1);
    }

    pub(super) fn expire(&mut self, now: Timestamp) -> Vec<QueuedTask> {
        let mut expired = Vec::new();
        while self.next_deadline().is_some_and(|deadline| deadline <= now)
            && let Some((_, key)) = self.deadlines.pop_first()
        {
            expired.extend(self.remove(&key));
        }
        expired
    }

    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    fn place(&self, task: &QueuedTask) -> Place {
        let lead = match task.priority {
            TaskPriority::Low | TaskPriority::Critical => 0,
            TaskPriority::Normal => NORMAL_LEAD,
            TaskPriority::High => NORMAL_LEAD + HIGH_LEAD,
        };
        let lead = i64::try_from((self.aging_unit * lead).as_millis()).unwrap_or(i64::MAX);
        Place {
            is_not_critical: task.priority != TaskPriority::Critical,
            time: task.created_at.as_millis().saturating_sub(lead),
            id: task.key.1,
        }
    }
}

/// A key without a count has no entry.
fn subtract<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K, by: usize) {
    if let Some(count) = counts.get_mut(key) {
        *count -= by;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use TaskPriority::{Critical, High, Low, Normal};

    use super::*;

    const MINUTE: i64 = 60_000;

    fn queue(tasks: &[(TaskPriority, i64)]) -> Queue {
        let mut queue = Queue::new(Duration::from_mins(1));
        for (number, (priority, minute)) in tasks.iter().enumerate() {
            queue.push(task("a", number, *priority, *minute));
        }
        queue
    }

    fn task(agent: &str, number: usize, priority: TaskPriority, minute: i64) -> QueuedTask {
        QueuedTask {
            key: (UserId::owner(), Uuid::from_u128(number as u128)),
            agent: agent.parse().unwrap(),
            priority,
            created_at: Timestamp::from_millis(minute * MINUTE),
            deadline: None,
            bytes: 10,
        }
    }

    fn order(mut queue: Queue) -> Vec<u128> {
        std::iter::from_fn(|| Some(queue.start_next(|_| usize::MAX)?.key.1.as_u128())).collect()
    }

    #[test]
    fn priority_precedes_age() {
        let tasks = [
            (Low, 0),
            (Normal, 1),
            (High, 2),
            (Critical, 3),
            (Critical, 2),
            (High, 1),
            (Normal, 0),
        ];
        assert_eq!(order(queue(&tasks)), [4, 3, 5, 2, 6, 1, 0]);
    }

    #[test]
    fn low_and_normal_tasks_do_not_wait_for_ever() {
        assert_eq!(
            order(queue(&[(Low, 0), (Normal, 9), (Normal, 11)])),
            [1, 0, 2]
        );
        assert_eq!(
            order(queue(&[(Normal, 0), (High, 59), (High, 61)])),
            [1, 0, 2]
        );
        assert_eq!(
            order(queue(&[(Low, 0), (High, 69), (High, 71), (Critical, 1000)])),
            [3, 1, 0, 2]
        );
    }

    #[test]
    fn equal_places_are_ordered_by_id() {
        assert_eq!(
            order(queue(&[(Normal, 0), (Normal, 0), (Low, -10)])),
            [0, 1, 2]
        );
    }

    #[test]
    fn agent_without_a_free_slot_does_not_delay_others() {
        let mut queue = queue(&[(Normal, 0), (Normal, 1), (Normal, 2)]);
        queue.push(task("b", 9, Low, 5));
        let slots = |_: &AgentName| 2;
        let mut next = || queue.start_next(slots).map(|task| task.key.1.as_u128());
        assert_eq!(
            [next(), next(), next(), next()],
            [Some(0), Some(1), Some(9), None]
        );
        queue.ended(&"a".parse().unwrap());
        assert_eq!(
            queue.start_next(slots).map(|task| task.key.1.as_u128()),
            Some(2)
        );
        assert_eq!(queue.len_of(&UserId::owner()), 0);
    }

    #[test]
    fn bytes_count_while_a_task_is_queued() {
        let owner = UserId::owner();
        let mut queue = queue(&[(Normal, 0), (Normal, 1), (Normal, 2)]);
        let other = UserId::from_text("default/bob");
        assert_eq!((queue.bytes_of(&owner), queue.bytes_of(&other)), (30, 0));
        let started = queue.start_next(|_| 1).unwrap();
        assert_eq!(queue.bytes_of(&owner), 20);
        queue.push(started);
        assert_eq!(queue.bytes_of(&owner), 30);
        for number in 0..3 {
            queue.remove(&(UserId::owner(), Uuid::from_u128(number)));
        }
        assert!(queue.bytes.is_empty());
    }

    #[test]
    fn deadlines_remove_queued_tasks() {
        let mut queue = Queue::new(Duration::from_mins(1));
        for (number, deadline) in [(0, Some(5)), (1, Some(3)), (2, None), (3, Some(9))] {
            let deadline = deadline.map(Timestamp::from_millis);
            queue.push(QueuedTask {
                deadline,
                ..task("a", number, Normal, 0)
            });
        }
        assert_eq!(queue.next_deadline(), Some(Timestamp::from_millis(3)));
        let expired = queue.expire(Timestamp::from_millis(5));
        assert_eq!(
            expired
                .iter()
                .map(|task| task.key.1.as_u128())
                .collect::<Vec<_>>(),
            [1, 0]
        );
        assert!(
            queue
                .remove(&(UserId::owner(), Uuid::from_u128(3)))
                .is_some()
        );
        assert_eq!((queue.next_deadline(), order(queue)), (None, vec![2]));
    }
}
