//! The primitives in shared memory, in the original's manner: an element points to its object and
//! its data, and the object to its material and to the procedures of its form. A test reads all of
//! these except the material.

use super::scene::Scene;
use super::shape::{Form, Material};
use outlive_machine::program::{Allocator, Array, Cpu, Word};

/// Words of an element: the corners of a box around it, which are for the preprocessing, its object
/// and its data.
const ELEMENT: u64 = 8;
const OBJECT_OF: u64 = 6;
const DATA_OF: u64 = 7;
/// Words of an object, two of which are used: its procedures and its material.
const OBJECT: u64 = 8;
const PROCEDURES_OF: u64 = 0;
const MATERIAL_OF: u64 = 1;

/// The locations of the primitives' data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Solids {
    elements: Array<u64>,
    objects: Array<u64>,
    /// For each form, the procedure that tests it.
    procedures: Array<u64>,
    data: Array<u64>,
    materials: Array<u64>,
}

impl Solids {
    /// Lays out the primitives of `scene`.
    pub(super) fn new(memory: &mut Allocator, scene: &Scene) -> Self {
        let (mut elements, mut objects, mut data) = (Vec::new(), Vec::new(), Vec::new());
        for (number, primitive) in (0..).zip(&scene.primitives) {
            let bounds = primitive.form.bounds().concat();
            elements.extend(bounds.into_iter().map(f64::to_bits));
            elements.extend([number * OBJECT, data.len() as u64]);
            let mut object = [0; OBJECT as usize];
            object[PROCEDURES_OF as usize] = primitive.form.kind();
            object[MATERIAL_OF as usize] = u64::from(primitive.material) * Material::WORDS;
            objects.extend(object);
            data.extend(primitive.form.numbers().into_iter().map(f64::to_bits));
            // No two share a line.
            data.resize(data.len().next_multiple_of(Word::PER_LINE as usize), 0);
        }
        let materials = scene.materials.iter().flat_map(|one| {
            let mut words = [0; Material::WORDS as usize];
            words[..4].copy_from_slice(&one.to_words());
            words
        });
        Self {
            elements: memory.array_of(&elements),
            objects: memory.array_of(&objects),
            procedures: memory.array_of(&Form::KINDS),
            data: memory.array_of(&data),
            materials: memory.array_of(&materials.collect::<Vec<u64>>()),
        }
    }

    /// Reads a primitive's form for a test, and counts the test's instructions.
    pub(super) fn read(self, cpu: &mut Cpu<'_>, number: u64) -> Form {
        let [object, data] = cpu.load_all(
            [OBJECT_OF, DATA_OF].map(|place| self.elements.word(number * ELEMENT + place)),
        );
        let procedures = self.objects.get(cpu, object + PROCEDURES_OF);
        let kind = self.procedures.get(cpu, procedures);
        let word = |place| self.data.word(data + place);
        let near = cpu.load_all([0, 1, 2, 3].map(word));
        let mut numbers = [0.0; 9];
        numbers[..4].copy_from_slice(&near.map(f64::from_bits));
        if Form::count(kind) == 9 {
            let far = cpu.load_all([4, 5, 6, 7, 8].map(word));
            numbers[4..].copy_from_slice(&far.map(f64::from_bits));
        }
        cpu.compute(Form::effort(kind));
        Form::from_numbers(kind, &numbers)
    }

    /// Reads the material of a primitive.
    pub(super) fn material(self, cpu: &mut Cpu<'_>, number: u64) -> Material {
        let object = self.elements.get(cpu, number * ELEMENT + OBJECT_OF);
        let first = self.objects.get(cpu, object + MATERIAL_OF);
        let words = [0, 1, 2, 3].map(|place| self.materials.word(first + place));
        Material::from_words(cpu.load_all(words))
    }
}
