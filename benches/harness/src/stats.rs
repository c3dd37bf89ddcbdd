//! Medians, and a histogram of latencies.

/// The median, minimum and maximum of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) rounds: usize,
}

impl Spread {
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures
            .into_iter()
            .filter(|figure| figure.is_finite())
            .collect();
        figures.sort_by(f64::total_cmp);
        let rounds = figures.len();
        let least = *figures.first()?;
        let most = *figures.last()?;
        let median = f64::midpoint(figures[(rounds - 1) / 2], figures[rounds / 2]);
        Some(Self {
            median,
            least,
            most,
            rounds,
        })
    }
}

/// The buckets per octave: no bucket is wider than 1.6 % of its values.
const FINE: u32 = 64;
const OCTAVES: u32 = 58;

/// Latencies in nanoseconds.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            buckets: vec![0; (FINE * (OCTAVES + 1)) as usize],
            count: 0,
        }
    }

    pub(crate) fn add(&mut self, value: u64) {
        let octave = value.checked_ilog2().unwrap_or_default().saturating_sub(6);
        let index = u64::from(octave * FINE) + (value >> octave);
        let last = self.buckets.len() - 1;
        self.buckets[usize::try_from(index).unwrap_or(last).min(last)] += 1;
        self.count += 1;
    }

    /// The quantile in microseconds.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let mut above = self.count as f64 * (1.0 - part);
        let mut index = self.buckets.len();
        while index > 0 {
            index -= 1;
            above -= self.buckets[index] as f64;
            if above < 0.0 {
                break;
            }
        }
        let index = u64::try_from(index).unwrap_or_default();
        let octave = (index / u64::from(FINE)).saturating_sub(1);
        ((index - octave * u64::from(FINE)) << octave) as f64 / 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        let spread = |figures: &[f64]| Spread::of(figures.iter().copied());
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[f64::NAN]), None);
        assert_eq!(
            spread(&[3.0]),
            Some(Spread {
                median: 3.0,
                least: 3.0,
                most: 3.0,
                rounds: 1
            })
        );
        let three = spread(&[9.0, 1.0, 2.0]).unwrap();
        assert_eq!((three.median, three.least, three.most), (2.0, 1.0, 9.0));
        assert!((spread(&[4.0, 1.0, 3.0, 2.0]).unwrap().median - 2.5).abs() < f64::EPSILON);
    }

    #[test]
    fn quantiles_are_right_to_two_percent() {
        let mut histogram = Histogram::new();
        (1..=100_000_u64).for_each(|value| histogram.add(value * 1000));
        for (part, expected) in [
            (0.5, 50_000.0),
            (0.99, 99_000.0),
            (0.999, 99_900.0),
            (0.001, 100.0),
        ] {
            let found = histogram.quantile(part);
            assert!(
                (found / expected - 1.0_f64).abs() < 0.02,
                "{part}: {found} instead of {expected}"
            );
        }
    }

    #[test]
    fn small_and_huge_values_have_their_buckets() {
        for value in [0, 1, 63, 64, 127, 128, 1 << 40, u64::MAX] {
            let mut histogram = Histogram::new();
            histogram.add(value);
            let found = histogram.quantile(0.5) * 1000.0;
            assert!(
                (found - value as f64).abs() <= value as f64 * 0.016,
                "{value} came back as {found}"
            );
        }
    }
}
