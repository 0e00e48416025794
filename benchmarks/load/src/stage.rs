//! One workload on a subject.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::seat::Seat;
use crate::workload::{BACKGROUND_NAMES, PERMITS, RW_TASKS};
use crate::{Client, Figures, Lock, Mode, Result, Subject, Workload, hand_off, one, own};

/// A workload on a subject: clients that are connected and locks that are ready.
pub struct Stage<L: Lock> {
    workload: Workload,
    seats: Vec<Seat<L>>,
    /// Readers that stay.
    _beside: Vec<(L, L::Held)>,
}

impl<L: Lock> fmt::Debug for Stage<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut stage = f.debug_struct("Stage");
        stage.field("workload", &self.workload).finish_non_exhaustive()
    }
}

impl<L: Lock> Stage<L> {
    /// Connects and prepares.
    ///
    /// # Errors
    /// The subject's.
    pub async fn enter<S>(subject: &S, workload: Workload) -> Result<Self>
    where
        S: Subject,
        S::Client: Client<Lock = L>,
    {
        let (mut seats, mut beside) = (Vec::new(), Vec::new());
        match workload {
            Workload::Own { tasks, background } => {
                let client = subject.connect().await?;
                for task in 0..tasks {
                    let mut seat = Seat::exclusive(0, client.lock(&format!("own/{task}")).await?);
                    for other in 1..if background { BACKGROUND_NAMES } else { 1 } {
                        seat.others
                            .push_back(client.lock(&format!("own/{task}/{other}")).await?);
                    }
                    seats.push(seat);
                }
            }
            Workload::One { tasks } => {
                let client = subject.connect().await?;
                for _ in 0..tasks {
                    seats.push(Seat::exclusive(0, client.lock("one").await?));
                }
            }
            Workload::Two { tasks } => {
                for number in 0..2 {
                    let client = subject.connect().await?;
                    for _ in 0..tasks {
                        seats.push(Seat::exclusive(number, client.lock("two").await?));
                    }
                }
            }
            Workload::Crowd { clients } => {
                for number in 0..clients {
                    seats.push(Seat::exclusive(number, subject.connect().await?.lock("crowd").await?));
                }
            }
            Workload::Read { tasks } => {
                let client = subject.connect().await?;
                for _ in 0..tasks {
                    seats.push(reader(&client, 0, "read").await?);
                }
            }
            Workload::ReadWrite { percent } => {
                for number in 0..2 {
                    let client = subject.connect().await?;
                    for _ in 0..RW_TASKS {
                        let mut seat = reader(&client, number, "rw").await?;
                        seat.write = Some((client.lock_in("rw", Mode::Exclusive).await?, percent));
                        seats.push(seat);
                    }
                }
            }
            Workload::Permits { tasks } => {
                let (client, mode) = (subject.connect().await?, Mode::Permit { of: PERMITS });
                for _ in 0..tasks {
                    seats.push(Seat::sharing(0, client.lock_in("permits", mode).await?, mode));
                }
            }
            Workload::Beside { readers } => {
                let name = format!("beside/{readers}");
                for _ in 0..readers {
                    let mut lock = reader(&subject.connect().await?, 0, &name).await?.lock;
                    let held = lock.acquire().await?;
                    beside.push((lock, held));
                }
                seats.push(reader(&subject.connect().await?, 0, &name).await?);
            }
            Workload::HandOff { clients } => {
                for client in 0..clients {
                    let lock = subject.connect().await?.lock("hand-off").await?;
                    seats.push(Seat::exclusive(client, lock));
                }
            }
        }
        Ok(Self {
            workload,
            seats,
            _beside: beside,
        })
    }

    /// Runs the workload for so long.
    ///
    /// # Errors
    /// The subject's, or that it granted what it must not.
    pub async fn round(&mut self, time: Duration) -> Result<Figures> {
        let (seats, inside) = (std::mem::take(&mut self.seats), Arc::default());
        let (seats, figures) = match self.workload {
            Workload::Own { background, .. } => own::play(seats, background, time).await?,
            Workload::HandOff { .. } => hand_off::play(seats, inside, time).await?,
            _ => one::play(seats, inside, time).await?,
        };
        self.seats = seats;
        Ok(figures)
    }
}

async fn reader<C: Client>(client: &C, number: usize, name: &str) -> Result<Seat<C::Lock>> {
    let lock = client.lock_in(name, Mode::Shared).await?;
    Ok(Seat::sharing(number, lock, Mode::Shared))
}
