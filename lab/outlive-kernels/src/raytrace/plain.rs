//! A reference renderer without threads or simulated memory.

use super::super::vector::{Vector, add, scale};
use super::grid::Walk;
use super::scene::{BACKGROUND, DEEPEST, FAINT, Scene, lit, toward, unlit};
use super::shape::Ray;

/// Returns the three colours of each pixel, row by row, and the number of rays.
pub(super) fn render(scene: &Scene, side: u64) -> (Vec<Vector>, u64) {
    let mut rays = 0;
    let pixels = (0..side * side).map(|pixel| scene.camera.ray(pixel % side, pixel / side));
    let colours = pixels.map(|ray| colour(scene, ray, &mut rays)).collect();
    (colours, rays)
}

fn colour(scene: &Scene, mut ray: Ray, rays: &mut u64) -> Vector {
    let mut sum = [0.0; 3];
    let mut weight = 1.0;
    for depth in 0.. {
        *rays += 1;
        let Some((distance, number)) = nearest(scene, &ray, f64::INFINITY) else {
            return add(sum, scale(BACKGROUND, weight));
        };
        let primitive = &scene.primitives[number as usize];
        let material = &scene.materials[primitive.material as usize];
        let point = ray.at(distance);
        let normal = primitive.form.normal(point, &ray);
        let mut seen = unlit(material);
        for &light in &scene.lights {
            *rays += 1;
            let (shadow, distance) = toward(point, light);
            if nearest(scene, &shadow, distance).is_none() {
                seen = add(seen, lit(material, normal, shadow.toward));
            }
        }
        sum = add(sum, scale(seen, weight * (1.0 - material.mirror)));
        weight *= material.mirror;
        if weight < FAINT || depth == DEEPEST {
            break;
        }
        ray = ray.reflected(point, normal);
    }
    sum
}

/// Returns the first primitive that the ray meets before `until`, with its distance.
fn nearest(scene: &Scene, ray: &Ray, until: f64) -> Option<(f64, u32)> {
    let mut walk = Walk::begin(scene.grid.frame, ray)?;
    let mut best = None;
    loop {
        let (first, count) = scene.grid.cells[walk.cell() as usize];
        for &number in &scene.grid.entries[first as usize..(first + count) as usize] {
            best = better(
                best,
                scene.primitives[number as usize].form.meets(ray),
                number,
                until,
            );
        }
        if best.is_some_and(|(distance, _)| distance <= walk.exit())
            || walk.exit() >= until
            || !walk.step(scene.grid.frame.cells[0])
        {
            return best;
        }
    }
}

/// Returns the nearer of two hits; of equal ones, that with the lower number.
pub(super) fn better(
    best: Option<(f64, u32)>,
    distance: Option<f64>,
    number: u32,
    until: f64,
) -> Option<(f64, u32)> {
    match (best, distance) {
        (_, None) => best,
        (_, Some(distance)) if distance >= until => best,
        (Some(best), Some(distance)) if best <= (distance, number) => Some(best),
        (_, Some(distance)) => Some((distance, number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The walk through the grid finds the same primitive as a test of every primitive.
    #[test]
    fn the_grid_hides_nothing() {
        let side = 24;
        let scene = Scene::new(2, side);
        let mut met = 0;
        for pixel in 0..side * side {
            let first = scene.camera.ray(pixel % side, pixel / side);
            let mut rays = vec![first];
            if let Some((distance, number)) = nearest(&scene, &first, f64::INFINITY) {
                met += 1;
                let point = first.at(distance);
                let normal = scene.primitives[number as usize].form.normal(point, &first);
                rays.push(first.reflected(point, normal));
            }
            for ray in rays {
                let numbers = 0..scene.primitives.len() as u32;
                let all = numbers.fold(None, |best, number| {
                    better(
                        best,
                        scene.primitives[number as usize].form.meets(&ray),
                        number,
                        f64::INFINITY,
                    )
                });
                assert_eq!(
                    nearest(&scene, &ray, f64::INFINITY),
                    all,
                    "pixel {pixel}, {ray:?}"
                );
            }
        }
        assert!(met > side * side / 2, "most pixels show something: {met}");
    }
}
