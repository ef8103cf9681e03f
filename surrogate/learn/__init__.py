"""Regressors of step times: `regressors` compete, `selection` compares them, `residual` corrects the simulator."""
