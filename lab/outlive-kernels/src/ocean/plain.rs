//! Sequential ocean in plain memory, and the check of the threads' result against it.

use super::Ocean;
use super::sweep::Program;
use outlive_machine::program::Word;

impl Ocean {
    /// Runs all steps with one thread in plain memory. Returns the stream functions and the number
    /// of sweeps.
    fn plain(&self) -> (Vec<Vec<f64>>, u64) {
        let (side, row) = (self.side, self.side + 2);
        let inner = || (1..=side).flat_map(move |i| (1..=side).map(move |j| (i, j)));
        let mut psi = vec![vec![0.0; row * row]; self.layers];
        let mut sweeps = 0;
        for _ in 0..self.steps {
            let old = psi.clone();
            for layer in 0..self.layers {
                let mut drive = vec![0.0; row * row];
                for (i, j) in inner() {
                    let at = |layer: usize| old.get(layer).map(|psi| psi[i * row + j]);
                    let above = layer.checked_sub(1).and_then(at);
                    let wind = self.wind(layer, i, j);
                    drive[i * row + j] =
                        Self::drive(old[layer][i * row + j], wind, above, at(layer + 1));
                }
                let psi = &mut psi[layer];
                loop {
                    let mut change = 0.0f64;
                    for colour in 0..2 {
                        for (i, j) in inner().filter(|(i, j)| (i + j) % 2 == colour) {
                            let at = i * row + j;
                            let around = [psi[at - row], psi[at + row], psi[at - 1], psi[at + 1]];
                            let new = self.relax(drive[at], around);
                            change = change.max((new - psi[at]).abs());
                            psi[at] = new;
                        }
                    }
                    sweeps += 1;
                    if change <= self.tolerance {
                        break;
                    }
                }
            }
        }
        (psi, sweeps)
    }
}

impl Program {
    /// Checks that the stream functions are those of one thread to the last bit, and solve the
    /// equation.
    pub fn check(&self, memory: &dyn Fn(Word) -> u64) -> Result<(), String> {
        let (plain, sweeps) = self.ocean.plain();
        let found = self.sweeps.at(memory, 0);
        if found != sweeps {
            return Err(format!("{found} sweeps instead of {sweeps}"));
        }
        let row_of_plain = self.ocean.side + 2;
        for (number, (layer, plain)) in self.layers.iter().zip(&plain).enumerate() {
            let psi = |row: usize, column: usize| {
                let owner = self.shape.owner(
                    row.clamp(1, self.ocean.side),
                    column.clamp(1, self.ocean.side),
                );
                f64::from_bits(memory(layer.psi.of(owner).word(row, column)))
            };
            for row in 1..=self.ocean.side {
                for column in 1..=self.ocean.side {
                    let found = psi(row, column);
                    let right = plain[row * row_of_plain + column];
                    if found.to_bits() != right.to_bits() {
                        return Err(format!(
                            "layer {number}, row {row}, column {column}: {found} instead of {right}"
                        ));
                    }
                    let part = layer.drive.of(self.shape.owner(row, column));
                    let drive = f64::from_bits(memory(part.word(row, column)));
                    let around = [
                        plain[(row - 1) * row_of_plain + column],
                        plain[(row + 1) * row_of_plain + column],
                        plain[row * row_of_plain + column - 1],
                        plain[row * row_of_plain + column + 1],
                    ];
                    let off = (self.ocean.relax(drive, around) - found).abs();
                    if off.is_nan() || off > 4.0 * self.ocean.mixing * self.ocean.tolerance {
                        return Err(format!(
                            "layer {number}, row {row}, column {column} differs by {off} from the \
                             equation's solution"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}
