"""Studies: settings files for the runner of `beamtree compare`, and pages and plots of what was measured."""
