"""beamtree beside other tools: MLflow, RecTools, OpenTelemetry. Nothing here is imported unless asked for."""
