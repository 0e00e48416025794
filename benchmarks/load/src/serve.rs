//! A process that measures on command: one line in, one JSON object a line out.
//!
//! First, unasked, `{"subjects":{"NAME":"VERSION"}}`. Then `enter NAME WORKLOAD`, answered by `{}`;
//! `round NAME MILLIS`, answered by its figures, `{"pairs/s":123.4}`; `leave NAME`, answered by `{}`. What went wrong is
//! answered by `{"error":"TEXT"}`. It ends with its input.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

use crate::{Client, Figures, Lock, Result, Stage, Subject, Workload};

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A subject that can be played by order.
pub trait Offer: Send {
    /// Gets ready for a workload.
    fn enter(&mut self, workload: Workload) -> Answer<'_, ()>;
    /// Runs it for so long.
    fn round(&mut self, time: Duration) -> Answer<'_, Figures>;
    /// Lets go of all that it needed.
    fn leave(&mut self);
}

/// Offers a subject.
pub fn offer<S: Subject>(subject: S) -> Box<dyn Offer> {
    Box::new(Player { subject, stage: None })
}

type LockOf<S> = <<S as Subject>::Client as Client>::Lock;

struct Player<S: Subject> {
    subject: S,
    stage: Option<Stage<LockOf<S>>>,
}

impl<S: Subject> Offer for Player<S>
where
    LockOf<S>: Lock,
{
    fn enter(&mut self, workload: Workload) -> Answer<'_, ()> {
        Box::pin(async move {
            self.stage = Some(Stage::enter(&self.subject, workload).await?);
            Ok(())
        })
    }

    fn round(&mut self, time: Duration) -> Answer<'_, Figures> {
        Box::pin(async move {
            let stage = self.stage.as_mut().ok_or("it has not entered a workload")?;
            stage.round(time).await
        })
    }

    fn leave(&mut self) {
        self.stage = None;
    }
}

/// Subjects by their names, each with its version.
pub type Subjects = BTreeMap<&'static str, (&'static str, Box<dyn Offer>)>;

/// Serves these subjects until the input ends.
///
/// # Errors
/// When the input cannot be read.
pub async fn serve(mut subjects: Subjects) -> Result<()> {
    let versions: BTreeMap<_, _> = subjects.iter().map(|(name, (version, _))| (name, version)).collect();
    println!("{}", json!({ "subjects": versions }));
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let answer = match obey(&mut subjects, &line).await {
            Ok(answer) => answer,
            Err(error) => Map::from_iter([("error".into(), error.to_string().into())]),
        };
        println!("{}", Value::Object(answer));
    }
    Ok(())
}

async fn obey(subjects: &mut Subjects, line: &str) -> Result<Map<String, Value>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [order, name, rest @ ..] = &words[..] else {
        return Err(format!("this is no order: {line:?}").into());
    };
    let found = subjects.iter_mut().find(|(known, _)| known == &name);
    let (_, (_, subject)) = found.ok_or_else(|| format!("there is no subject {name:?}"))?;
    match (*order, rest) {
        ("enter", [workload]) => subject.enter(workload.parse()?).await?,
        ("round", [millis]) => {
            let figures = subject.round(Duration::from_millis(millis.parse()?)).await?;
            let named = figures
                .into_iter()
                .map(|(unit, value)| (unit.to_string(), value.into()));
            return Ok(named.collect());
        }
        ("leave", []) => subject.leave(),
        _ => return Err(format!("this is no order: {line:?}").into()),
    }
    Ok(Map::new())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::{Mutex, OwnedMutexGuard};

    use super::*;

    struct Mutexes;

    impl Subject for Mutexes {
        type Client = Self;

        async fn connect(&self) -> Result<Self> {
            Ok(Self)
        }
    }

    impl Client for Mutexes {
        type Lock = Arc<Mutex<()>>;

        async fn lock(&self, _name: &str) -> Result<Self::Lock> {
            Ok(Arc::default())
        }
    }

    impl Lock for Arc<Mutex<()>> {
        type Held = OwnedMutexGuard<()>;

        async fn acquire(&mut self) -> Result<Self::Held> {
            Ok(self.clone().lock_owned().await)
        }

        async fn release(&mut self, held: Self::Held) -> Result<()> {
            drop(held);
            Ok(())
        }
    }

    #[tokio::test]
    async fn does_as_it_is_told_and_says_what_it_cannot() {
        let mut subjects = Subjects::from([("mutex", ("1", offer(Mutexes)))]);
        let mut told = async |line: &str| obey(&mut subjects, line).await.map_err(|error| error.to_string());

        assert_eq!(
            told("round mutex 3000").await.unwrap_err(),
            "it has not entered a workload"
        );
        assert!(told("enter mutex own-2").await.unwrap().is_empty());
        let figures = told("round mutex 3000").await.unwrap();
        assert!(figures["pairs/s"].as_f64().unwrap() > 0.0, "{figures:?}");
        assert!(told("leave mutex").await.unwrap().is_empty());

        told("enter mutex own-1-background").await.unwrap();
        assert_eq!(
            told("round mutex 3000").await.unwrap_err(),
            "it has no release in the background"
        );
        assert_eq!(
            told("enter spinlock own-1").await.unwrap_err(),
            "there is no subject \"spinlock\""
        );
        assert_eq!(
            told("sing mutex").await.unwrap_err(),
            "this is no order: \"sing mutex\""
        );
    }
}
