//! A question to all nodes: whose answers are waited for, and for how long.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lock_core::{Error, ErrorKind, Result};
use tokio::time::sleep;

use crate::client::Client;
use crate::error::NodeErrors;
use crate::node::Node;

/// The time to wait for the other nodes when a majority has answered.
const PATIENCE: Duration = Duration::from_millis(500);
/// For how long one that was not waited for, or could not be asked, is not waited for any more.
pub(super) const SUSPICION: Duration = Duration::from_secs(5);

/// A question to all nodes, and their answers.
pub(super) struct Asking<'a, T, Q> {
    client: &'a Client,
    question: Q,
    asked: FuturesUnordered<BoxFuture<'a, (usize, Result<T>)>>,
    /// By node. `None` for one that has not answered.
    pub(super) answers: Vec<Option<Result<T>>>,
}

impl<'a, T: Send + 'a, Q: Fn(&'a Node) -> BoxFuture<'a, Result<T>>> Asking<'a, T, Q> {
    /// Asks all nodes, and waits for a majority, and for a while for the others that are not suspected.
    ///
    /// # Errors
    /// If a majority does not answer.
    pub(super) async fn begin(client: &'a Client, question: Q) -> Result<Self> {
        let mut asking = Self {
            client,
            question,
            asked: FuturesUnordered::new(),
            answers: client.nodes.iter().map(|_| None).collect(),
        };
        asking.ask(0..client.nodes.len());
        let is_suspected = |node: usize| client.nodes[node].is_suspected();
        for silent in asking.wait(PATIENCE, is_suspected).await? {
            client.nodes[silent].suspect(SUSPICION);
        }
        Ok(asking)
    }

    /// Waits for this time, or until one more node has answered. After the time, asks all nodes again that have answered, and waits
    /// for them for as long. Those that have not answered are not asked again, as their answers are on their way.
    pub(super) async fn go_on(&mut self, time: Duration) -> Result<()> {
        tokio::select! {
            biased;
            Some((node, answer)) = self.asked.next() => self.answered(node, answer),
            () = sleep(time) => {
                let open = self.open();
                let answered: Vec<usize> = (0..self.answers.len()).filter(|node| !open.contains(node)).collect();
                self.ask(answered);
                self.wait(time, |node| open.contains(&node)).await?;
            }
        }
        Ok(())
    }

    fn ask(&mut self, nodes: impl IntoIterator<Item = usize>) {
        for node in nodes {
            let answer = (self.question)(&self.client.nodes[node]);
            self.asked.push(Box::pin(answer.map(move |answer| (node, answer))));
            self.answers[node] = None;
        }
    }

    /// Waits for a majority, and then for the others until the `patience` is over, but for those that are `left_out`. Returns the
    /// nodes for which it has waited in vain.
    async fn wait(&mut self, patience: Duration, left_out: impl Fn(usize) -> bool) -> Result<Vec<usize>> {
        let patience = sleep(patience);
        tokio::pin!(patience);
        let mut silent = Vec::new();
        loop {
            let is_enough = self.given().count() >= self.client.needed();
            if is_enough && self.open().into_iter().all(&left_out) {
                break;
            }
            tokio::select! {
                biased;
                answer = self.asked.next() => match answer {
                    Some((node, answer)) => self.answered(node, answer),
                    None => break,
                },
                () = &mut patience, if is_enough => {
                    silent = self.open();
                    break;
                }
            }
        }
        let (answers, nodes) = (self.given().count(), self.answers.len());
        if answers < self.client.needed() {
            let message = format!("{answers} of {nodes} nodes tell who has the lock, and a majority is needed");
            return Err(self.errors().into_error(message));
        }
        Ok(silent)
    }

    fn answered(&mut self, node: usize, answer: Result<T>) {
        let own = &self.client.nodes[node];
        match &answer {
            Ok(_) => own.has_answered(),
            Err(error) if error.is_retryable() => own.suspect(SUSPICION),
            Err(_) => {}
        }
        self.answers[node] = Some(answer);
    }

    pub(super) fn given(&self) -> impl Iterator<Item = &T> {
        self.answers.iter().flatten().flatten()
    }

    /// The nodes that have not answered.
    fn open(&self) -> Vec<usize> {
        let is_open = |node: &usize| self.answers[*node].is_none();
        (0..self.answers.len()).filter(is_open).collect()
    }

    /// Why each node that gave no answer did not.
    pub(super) fn errors(&self) -> NodeErrors {
        let mut errors = NodeErrors::default();
        for (node, answer) in self.answers.iter().enumerate() {
            let error = match answer {
                Some(Ok(_)) => continue,
                Some(Err(error)) => error.clone(),
                None => Error::new(ErrorKind::Unavailable, "no answer in time"),
            };
            errors.add(node, self.client.nodes[node].kind(), error);
        }
        errors
    }
}
